"""One change travels all the way: plan, apply, SFT then GRPO, MLflow, promotion, a completion, an empty plan."""

from __future__ import annotations

import json
import re

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.slow

DENSE = '''"""A reward that a random model can climb: digits are good, so is brevity."""


def reward(question: str, answer: str, completion: str) -> dict[str, float]:
    """Score one completion."""
    digits = sum(c.isdigit() for c in completion)
    return {"digits": digits / max(1, len(completion)), "brevity": 1 / (1 + len(completion))}
'''


@pytest.fixture(scope="module")
def repository(example):
    return example("sft-then-grpo", {"rewards/tags.py": DENSE})


@pytest.fixture(scope="module")
def applied(site, repository):
    """Everything is applied and has settled; what the command printed."""
    return site.run(
        repository, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "6m"
    )


@pytest.fixture(scope="module")
def state(site, repository, applied):
    return site.state(repository)


def test_both_runs_complete(state):
    states = {name: state[f"experiment/{name}"]["run"]["state"] for name in ("tags-sft", "tags-grpo")}

    assert states == {"tags-sft": "completed", "tags-grpo": "completed"}


def test_the_chained_run_started_from_the_other_ones_best_adapter(state):
    run = state["experiment/tags-grpo"]["run"]
    base = next(s for s in run["test_scores"] if s["label"] == "base")

    assert state["experiment/tags-grpo"]["spec"]["inputs"]["base"]["experiment"] == "tags-sft"
    assert base["rows"] == 128


def test_the_apply_prints_test_scores_lineage_and_addresses(applied):
    for wanted in ("base", "best", "generation", "http://127.0.0.1"):
        assert wanted in applied.stdout


def test_evolution_left_a_clone_and_a_mutation(state):
    lineage = [r for name in ("tags-sft", "tags-grpo") for r in state[f"experiment/{name}"]["run"]["lineage"]]

    assert any(r["parent"] != r["member"] for r in lineage)
    assert any(r["mutation"] for r in lineage)


def test_base_and_best_are_scored_on_rows_nobody_has_seen(state):
    scores = {s["label"]: s for s in state["experiment/tags-grpo"]["run"]["test_scores"]}

    assert scores["base"]["rows"] == scores["best"]["rows"] >= 100
    assert set(scores["best"]["mean"]) == {"reward", "digits", "brevity"}


def test_the_second_plan_is_empty(site, repository, applied):
    done = site.run(repository, "plan", "--target", "local", "--detailed-exitcode", "--json")
    plan = json.loads(done.stdout)

    assert _actions(plan) == {}
    assert plan["summary"]["unchanged"] == 7


def test_the_deployment_serves_the_best_checkpoint(state):
    deployment = state["deployment/tags"]["deployment"]

    assert deployment["state"] == "serving"
    assert deployment["digest"] == state["experiment/tags-grpo"]["run"]["best"]["digest"]


def test_a_pulled_adapter_loads_in_plain_peft_and_has_the_recorded_probabilities(
    site, repository, applied, state, tmp_path
):
    folder = tmp_path / "adapter"
    site.run(repository, "checkpoints", "pull", "tags-grpo", "--target", "local", "--out", str(folder))
    note = json.loads((folder / "arena.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(f"{site.environment['ARENA_MODELS_DIR']}/tiny-llama")
    model = PeftModel.from_pretrained(model.float(), folder).eval()
    off = [
        abs(a - b) for a, b in zip(_logprobs(model, note["probe"]), note["probe"]["logprobs"], strict=True)
    ]

    assert sum(off) / len(off) <= 0.02
    with model.disable_adapter():
        base = _logprobs(model, note["probe"])
    assert base != _logprobs(model, note["probe"])
    digest = state["experiment/tags-grpo"]["run"]["best"]["digest"]
    assert digest in (folder / "README.md").read_text()


def test_a_merged_model_needs_transformers_only_and_says_the_same(site, repository, applied, tmp_path):
    pulled = ("checkpoints", "pull", "tags-grpo", "--target", "local")
    site.run(repository, *pulled, "--out", str(tmp_path / "adapter"))
    site.run(repository, *pulled, "--format", "merged", "--out", str(tmp_path / "merged"))
    assert {path.name for path in (tmp_path / "merged").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "README.md",
    }
    probe = json.loads((tmp_path / "adapter" / "arena.json").read_text())["probe"]
    base = AutoModelForCausalLM.from_pretrained(f"{site.environment['ARENA_MODELS_DIR']}/tiny-llama")
    adapted = PeftModel.from_pretrained(base.float(), tmp_path / "adapter").eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").float().eval()

    assert _logprobs(merged, probe) == pytest.approx(_logprobs(adapted, probe), abs=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
    card = (tmp_path / "merged" / "README.md").read_text()
    assert card.startswith("---\nbase_model: ")
    assert "- format: base and adapter merged (transformers)" in card
    assert not list(tmp_path.glob(".*"))


def _logprobs(model, probe: dict) -> list[float]:
    prompt, tokens = probe["prompt_ids"], probe["token_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()


def test_a_completion_is_streamed_to_the_terminal(site, repository, applied):
    done = site.run(
        repository, "agent", "generate", "tags", "--target", "local", "--prompt", "What is 2 plus 2?"
    )

    assert done.stdout


def test_the_unmodified_openai_client_streams_from_the_deployment(site, applied):
    from openai import OpenAI

    server = site.server()
    client = OpenAI(base_url=server["url"] + "/v1", api_key=server["token"])
    chunks = list(
        client.chat.completions.create(
            model="tags",
            messages=[{"role": "user", "content": "What is 2 plus 2?"}],
            stream=True,
            max_tokens=8,
        )
    )

    assert len(chunks) > 1
    assert re.match(r"tags@\d+", chunks[0].system_fingerprint)


def test_mlflow_holds_one_parent_and_a_run_per_member(state, mlflow, until):
    run = state["experiment/tags-grpo"]["run"]
    parent = mlflow.get_run(run["mlflow_url"].rpartition("/")[2])

    children = until(lambda: len(found := mlflow.children(parent)) == 2 and found)

    assert [c.data.tags["mlflow.runName"] for c in children] == ["m0", "m1"]


def test_every_point_of_a_member_is_in_mlflow_once(state, mlflow, until):
    run = state["experiment/tags-grpo"]["run"]
    parent = mlflow.get_run(run["mlflow_url"].rpartition("/")[2])
    until(lambda: mlflow.get_run(parent.info.run_id).info.status == "FINISHED")

    for child in mlflow.children(parent):
        steps = [m.step for m in mlflow.client.get_metric_history(child.info.run_id, "reward/mean")]
        assert steps == list(range(32, 513, 32))


def test_registered_versions_carry_step_member_and_fitness(state, mlflow, until):
    run = state["experiment/tags-grpo"]["run"]

    best = until(lambda: next((v for v in mlflow.versions(run) if "best" in v.aliases), None))
    versions = mlflow.versions(run)

    assert len(versions) >= 4
    assert (int(best.tags["step"]), int(best.tags["member"])) == (run["best"]["step"], run["best"]["member"])


def test_a_description_is_an_update_and_a_learning_rate_a_new_version(site, repository, applied, commit_all):
    experiment = repository / "experiments" / "tags-grpo.yaml"
    manifest = repository / "manifests" / "tags_grpo.yaml"
    before = experiment.read_text(), manifest.read_text()
    experiment.write_text(before[0].replace("Makes the answers right", "Makes them right"))
    commit_all(repository)
    described = json.loads(site.run(repository, "plan", "--target", "local", "--json").stdout)
    manifest.write_text(before[1].replace("lr: 1.0e-4", "lr: 2.0e-4"))
    commit_all(repository)
    faster = json.loads(site.run(repository, "plan", "--target", "local", "--json").stdout)
    experiment.write_text(before[0])
    manifest.write_text(before[1])
    commit_all(repository)

    assert _actions(described) == {"experiment/tags-grpo": "update"}
    assert _actions(faster)["experiment/tags-grpo"] == "new_version"
    site.run(repository, "plan", "--target", "local", "--detailed-exitcode")


def _actions(plan: dict) -> dict[str, str]:
    return {c["address"]: c["action"] for c in plan["changes"] if c["action"] != "noop"}
