"""Experiments that start from another one's adapter, and evaluation that leaves no trace."""

import json

import pytest

from arena_gitops.spec.job import BaseInput
from arena_runner import checkpoint
from arena_runner.peft_format import read


def chained(job, *, merge=False):
    base = BaseInput(experiment="before", files={}, merge=merge)
    return job.model_copy(update={"inputs": job.inputs.model_copy(update={"base": base})})


@pytest.fixture
def before(lab):
    """The export of a short SFT run on the same questions."""
    lab.run(lab.job("SFT", training={"max_steps": 80}), "before")
    return next((lab.folder / "before" / "exports").glob("step_80/m0"))


def test_a_chained_experiment_starts_from_the_adapter_and_is_compared_with_it(lab, before):
    again = lab.run(chained(lab.job("SFT", training={"max_steps": 8, "pop_size": 2})), "after", base=before)

    first = json.loads((before / "arena.json").read_text())
    scores = {event.scores.label: event.scores.mean["reward"] for event in again.of("test_scores")}
    assert first["fitness"] > -4
    assert scores["base"] > -4
    assert scores["best"] >= scores["base"] - 0.5


def test_all_members_of_a_chained_experiment_start_as_copies(lab, before):
    lab.run(
        chained(lab.job("SFT", algorithm={"lr": 0.0}, training={"max_steps": 8, "pop_size": 2})),
        "after",
        base=before,
    )

    start, _ = read(before)
    for member in ("m0", "m1"):
        tensors, _ = read(next((lab.folder / "after" / "exports").glob(f"step_8/{member}")))
        assert all(tensors[name].equal(start[name]) for name in start)


def test_grpo_measures_its_distance_from_the_adapter_it_started_from(lab, before):
    """At the first update the policy is its own reference, whatever the base model would say."""
    job = chained(lab.job("GRPO", algorithm={"beta": 0.5}, training={"max_steps": 24}))
    kl = [e.values["kl"] for e in lab.run(job, "after", base=before).of("metrics") if "kl" in e.values]

    assert kl[0] == pytest.approx(0.0, abs=1e-4)
    assert kl[-1] > 1e-6


def test_another_rank_than_the_adapters_is_refused(lab, before):
    network = lab.job("SFT").manifest["network"]
    other = {**network, "lora_config": {**network["lora_config"], "lora_r": 4}}
    ended = lab.run(chained(lab.job("SFT", network=other)), "after", base=before, fails=True)

    assert ended.finished.reason == "user_code"
    assert "rank 2, the manifest says lora_r: 4" in ended.finished.message


def test_evaluation_leaves_no_trace_in_training(lab):
    weights = []
    for interval in (1, 5):
        lab.run(
            lab.job("GRPO", training={"max_steps": 40, "evaluation_interval": interval}), f"every{interval}"
        )
        state = checkpoint.state_folders(lab.folder / f"every{interval}" / "states")[-1]
        weights.append(checkpoint.load_state(state)[1].adapters["masters"])

    assert weights[0].equal(weights[1])


def test_two_members_with_equal_values_sample_different_completions(lab):
    """Their prompts are the same: a member's k-th prompt is row k of the stream."""
    ended = lab.run(lab.job("GRPO", training={"max_steps": 16, "pop_size": 2}))

    lengths, rewards = (
        [[e.values[name] for e in ended.of("metrics") if e.member == m] for m in (0, 1)]
        for name in ("completion_length", "reward/std")
    )
    assert (lengths[0], rewards[0]) != (lengths[1], rewards[1])
