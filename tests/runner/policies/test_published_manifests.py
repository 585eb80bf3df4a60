"""Every published manifest, with nothing but its budget made small, trains to its end or is refused for one thing."""

from __future__ import annotations

import pytest
from labs import Recorder, make_lab
from playground import play
from published import HEAD, MENDED, PAGE, SHARED, names, read, refused, table

from arena_gitops.spec.job import EnvironmentInput, JobInputs, JobSpec, RunState
from arena_gitops.spec.manifest import parse_manifest

ABSENT = "the team's shared/ folder is not part of the project"
NOT_YET = ("bandit/neural_ucb.yaml", "llm_finetuning/grpo_multiturn.yaml")
TEXT = (
    "llm_finetuning/dpo.yaml",
    "llm_finetuning/grpo.yaml",
    "llm_finetuning/gspo.yaml",
    "sft.yaml",
    "tutorial_gsm8k_grpo.yaml",
)
CLASSIC = (
    "ddpg/ddpg.yaml",
    "docs_dqn.yaml",
    "dqn/dqn.yaml",
    "dqn/dqn_rainbow.yaml",
    "multi_agent/ippo.yaml",
    "multi_agent/maddpg.yaml",
    "ppo/ppo.yaml",
    "ppo/ppo_recurrent.yaml",
    "td3.yaml",
)
SMALL = {"training.pop_size": 2, "training.target_score": None}
SMALL_CLASSIC = {
    **SMALL,
    "training.max_steps": 256,
    "training.evo_steps": 128,
    "training.evaluation_interval": 128,
    "training.eval_steps": 20,
    "training.eval_episodes": 2,
    "training.test_episodes": 2,
}
SMALL_TEXT = {
    **SMALL,
    "training.max_steps": 32,
    "training.evo_steps": 1,
    "training.evaluation_interval": 1,
    "training.num_epochs": None,
    "training.eval_rows": 2,
    "training.test_rows": 4,
    "algorithm.batch_size": 2,
}
SHORT = {"algorithm.group_size": 4, "algorithm.max_output_tokens": 6}


def small(name, values):
    """The manifest with less to do, and with what makes it consistent where it is not.

    A text algorithm's context is longer than its author's: the tiny model reads letters, not words.
    """
    if not SHARED.exists():
        pytest.skip(ABSENT)
    parsed = parse_manifest(read(name), overrides={**MENDED.get(name, {}), **values})
    assert not parsed.refusals
    return parsed.manifest


@pytest.mark.parametrize("name", CLASSIC)
def test_a_published_manifest_of_policies_trains(name, tmp_path):
    own = {"algorithm.learn_step": 256} if name.startswith("ppo/") else {}
    manifest = small(name, {**SMALL_CLASSIC, **own})
    job = JobSpec(
        run_id="r1",
        segment=0,
        experiment="tiny",
        fingerprint="f",
        manifest=manifest.normal(),
        inputs=JobInputs(environment=EnvironmentInput(gym_id=manifest.environment.name)),
        model=None,
        seed=1,
        tier="local",
    )

    ports = play(job, tmp_path, Recorder())

    assert ports.finished.state == RunState.COMPLETED, ports.finished.message
    assert len(ports.of("evaluation")) >= 4


@pytest.mark.parametrize("name", TEXT)
def test_a_published_manifest_of_a_language_model_trains(name, tmp_path, tiny_model_dir, monkeypatch):
    monkeypatch.setenv("ARENA_THREADS", "1")
    monkeypatch.setenv("ARENA_DTYPE", "float32")
    model = {"network.pretrained_model_name_or_path": str(tiny_model_dir), "network.max_context_length": 1024}
    short = SHORT if read_algorithm(name) in {"GRPO", "GSPO"} else {}
    manifest = small(name, {**SMALL_TEXT, **short, **model})
    lab = make_lab(tmp_path, tiny_model_dir)
    job = lab.job(manifest.algorithm.name if manifest.algorithm.name in {"DPO", "SFT"} else "GRPO")

    told = lab.run(job.model_copy(update={"manifest": manifest.normal()}))

    assert told.finished.state == RunState.COMPLETED, told.finished.message
    assert len(told.of("evaluation")) >= 2


def read_algorithm(name):
    return read(name)["algorithm"]["name"] if SHARED.exists() else ""


def test_the_others_are_refused_for_one_thing():
    if not SHARED.exists():
        pytest.skip(ABSENT)
    alone = {name: refused(read(name), MENDED.get(name)) for name in names()}

    assert {name for name, why in alone.items() if why} == set(NOT_YET)
    assert set(alone) == {*NOT_YET, *TEXT, *CLASSIC}
    assert "'NeuralUCB' has no room yet" in alone["bandit/neural_ucb.yaml"]


def test_the_page_says_what_becomes_of_each():
    """`python tests/support/published.py` writes it."""
    if not SHARED.exists():
        pytest.skip(ABSENT)

    assert table() in PAGE.read_text(encoding="utf-8")


def test_the_page_names_the_manifests_that_are_trained_here():
    """Without the folder too: what the page calls trained is what the tests above train."""
    rows = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0].splitlines()
    told = {row.split("`")[1]: row for row in rows}

    assert {name for name, row in told.items() if "trained" in row} == {*TEXT, *CLASSIC}
    assert {name for name, row in told.items() if "trained" not in row} == set(NOT_YET)
