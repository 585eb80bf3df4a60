"""The six kinds, field by field as the design writes them."""

from __future__ import annotations

import pytest

from arena_gitops.errors import InvalidDocumentError
from arena_gitops.spec import resource
from arena_gitops.spec.job import COLUMNS
from arena_gitops.spec.kinds import ADDRESS_KIND, KINDS
from arena_gitops.spec.problems import parse
from arena_gitops.spec.references import Reference
from arena_gitops.spec.resource import Ref

PROJECT = {"kind": "Project", "name": "gsm8k", "description": "tutorial", "llm_based": True}
DATASET = {
    "kind": "Dataset",
    "name": "gsm8k",
    "category": "reasoning",
    "file": "data/gsm8k.csv",
    "column_mapping": {"question": "q", "answer": "a"},
}
HUB = {"id": "openai/gsm8k", "config": "main", "split": "train", "revision": "0" * 40}
REWARD = {
    "kind": "Reward",
    "name": "gsm8k",
    "file": "gsm8k.py",
    "function": "reward",
    "requirements": [],
    "network": "none",
    "cases": [{"question": "…", "answer": "#### 72", "completion": "<answer>72</answer>", "expect": 1.0}],
}
ENVIRONMENT = {
    "kind": "Environment",
    "name": "merge-env",
    "source": ".",
    "entrypoint": "merge_env:MergeEnv",
    "multi_agent": False,
    "requirements": "requirements.txt",
    "config": "env_config.yaml",
}
EXPERIMENT = {
    "kind": "Experiment",
    "name": "gsm8k-grpo",
    "owner": "rl-team",
    "description": "…",
    "labels": {"team": "a"},
    "lifecycle": {"protect": True},
    "manifest": "../manifests/gsm8k_grpo.yaml",
    "set": {"training.max_steps": 20000},
    "dataset": "gsm8k",
    "reward": "gsm8k@v3",
    "base": {"experiment": "gsm8k-sft", "checkpoint": "best"},
    "tier": "arena-medium",
    "num_nodes": 1,
    "budget": {"max_runtime": "6h", "max_credits": 30},
    "retry": {"max": 0, "on": ["preempted"]},
    "on_upstream_change": {"dataset": "stale", "reward": "new_version", "environment": "new_version"},
}
DEPLOYMENT = {
    "kind": "Deployment",
    "name": "gsm8k",
    "experiment": "gsm8k-grpo",
    "checkpoint": "best",
    "gate": {"metric": "eval/reward", "min": 0.6, "min_delta": 0.0},
    "strategy": {"type": "blue_green", "auto_rollback": True},
    "tier": "arena-medium",
}
DOCUMENTS = [PROJECT, DATASET, REWARD, ENVIRONMENT, EXPERIMENT, DEPLOYMENT]


def read(raw):
    return parse(KINDS[raw["kind"]], raw)


def messages(raw):
    with pytest.raises(InvalidDocumentError) as caught:
        read(raw)
    return str(caught.value)


def test_every_kind_is_found_and_has_an_address():
    assert tuple(ADDRESS_KIND[name] for name in KINDS) == resource.KINDS


@pytest.mark.parametrize("raw", DOCUMENTS, ids=lambda raw: raw["kind"])
def test_the_documents_of_the_design_parse(raw):
    assert read(raw).name == raw["name"]


@pytest.mark.parametrize("raw", DOCUMENTS, ids=lambda raw: raw["kind"])
def test_every_kind_refuses_a_key_nobody_declared(raw):
    assert "unknown key 'extra'" in messages({**raw, "extra": 1})


@pytest.mark.parametrize("raw", DOCUMENTS, ids=lambda raw: raw["kind"])
def test_a_resource_cannot_be_changed(raw):
    with pytest.raises(ValueError, match="frozen"):
        read(raw).name = "other"


def test_an_experiment_says_what_it_refers_to():
    assert read({**EXPERIMENT, "project": "gsm8k"}).references() == (
        Reference(("project",), "project", Ref("gsm8k")),
        Reference(("dataset",), "dataset", Ref("gsm8k")),
        Reference(("reward",), "reward", Ref("gsm8k", version=3)),
        Reference(("base", "experiment"), "experiment", Ref("gsm8k-sft")),
    )


def test_a_deployment_refers_to_its_experiment():
    assert read(DEPLOYMENT).references() == (Reference(("experiment",), "experiment", Ref("gsm8k-grpo")),)


def test_a_kind_without_references_has_none():
    assert read(PROJECT).references() == ()


def test_overrides_are_written_as_set():
    assert read(EXPERIMENT).overrides == {"training.max_steps": 20000}


@pytest.mark.parametrize(
    ("written", "seconds"), [("6h", 21_600), ("90m", 5_400), ("1h30m", 5_400), ("1.5d", 129_600), ("45s", 45)]
)
def test_a_duration_becomes_seconds(written, seconds):
    assert read({**EXPERIMENT, "budget": {"max_runtime": written}}).budget.max_runtime == seconds


@pytest.mark.parametrize("written", ["6", 6, "h", "6 h", "6w", "-1h", ""])
def test_what_is_no_duration_says_how_to_write_one(written):
    assert "like 6h, 90m or 1h30m" in messages({**EXPERIMENT, "budget": {"max_runtime": written}})


@pytest.mark.parametrize("hf", [HUB, {"id": "openai/gsm8k"}])
def test_a_dataset_may_lie_on_the_hub(hf):
    raw = {key: value for key, value in DATASET.items() if key != "file"}

    assert read({**raw, "hf": hf}).hf.id == "openai/gsm8k"


def test_a_dataset_needs_exactly_one_source():
    without = {key: value for key, value in DATASET.items() if key != "file"}

    assert "exactly one of 'file' and 'hf', got both" in messages({**DATASET, "hf": HUB})
    assert "exactly one of 'file' and 'hf', got neither" in messages(without)


@pytest.mark.parametrize("category", COLUMNS)
def test_a_category_knows_its_columns(category):
    mapping = {role: f"column of {role}" for role in COLUMNS[category]}

    assert read({**DATASET, "category": category.value, "column_mapping": mapping}).column_mapping == mapping


def test_a_missing_column_is_named():
    assert "also needs answer" in messages({**DATASET, "column_mapping": {"question": "q"}})


def test_a_column_of_another_category_is_named():
    mapping = {"question": "q", "answer": "a", "chosen": "c"}

    assert "has no chosen" in messages({**DATASET, "column_mapping": mapping})


@pytest.mark.parametrize("file", ["/data/a.csv", "data\\a.csv", "~/a.csv", "a.xlsx", ""])
def test_a_dataset_file_is_a_relative_path_of_a_known_format(file):
    assert "relative path of a .csv, .jsonl or .parquet file" in messages({**DATASET, "file": file})


def test_an_experiment_has_one_source_of_rollouts():
    assert "at most one of 'dataset' and 'environment'" in messages(
        {**EXPERIMENT, "environment": "merge-env"}
    )


def test_an_environment_scores_by_itself():
    raw = {key: value for key, value in EXPERIMENT.items() if key != "dataset"}

    assert "remove 'reward'" in messages({**raw, "environment": "merge-env"})


def test_an_override_is_a_dotted_path():
    assert "expected SECTION.FIELD" in messages({**EXPERIMENT, "set": {"max_steps": 3}})


@pytest.mark.parametrize("text", ["best", "step_20", "step_20/m3", "@champion"])
def test_the_forms_of_a_checkpoint(text):
    assert str(read({**DEPLOYMENT, "checkpoint": text}).choice) == text


@pytest.mark.parametrize("text", ["", "latest", "step_0", "step_x", "step_5/3", "@", "@a b"])
def test_what_is_no_checkpoint_is_refused(text):
    assert "expected best, step_N" in messages({**DEPLOYMENT, "checkpoint": text})


def test_a_gate_asks_for_something():
    assert "needs 'min', 'min_delta' or both" in messages({**DEPLOYMENT, "gate": {"metric": "eval/reward"}})


def test_only_best_is_chosen_by_a_figure():
    assert read({**DEPLOYMENT, "best": {"metric": "eval/loss", "mode": "min"}}).best.mode == "min"
    assert "this is step_8" in messages({**DEPLOYMENT, "checkpoint": "step_8", "best": {"mode": "min"}})


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 64, "a/b"])
def test_a_name_is_lower_case_with_inner_dashes(name):
    assert "expected a name of lower case letters" in messages({**PROJECT, "name": name})


@pytest.mark.parametrize("secret", ["judge", "A-B", "sk-live"])
def test_secrets_are_names_never_values(secret):
    assert "the name of a secret" in messages({**REWARD, "secrets": [secret]})


def test_a_secret_may_be_written_as_a_reference():
    found = parse(KINDS["Reward"], {**REWARD, "secrets": ["${secret:JUDGE_KEY}", "OTHER"]})
    assert found.secrets == ("JUDGE_KEY", "OTHER")


def test_merging_the_base_has_no_room_yet():
    assert "has no room yet" in messages({**EXPERIMENT, "base": {"experiment": "a", "merge": True}})


def test_an_experiment_may_leave_everything_but_its_manifest_to_the_manifest():
    experiment = read({"kind": "Experiment", "name": "e", "manifest": "m.yaml"})

    assert experiment.references() == ()
    assert experiment.on_upstream_change.dataset == "stale"


def test_a_base_may_say_that_nothing_is_merged():
    assert read({**EXPERIMENT, "base": {"experiment": "a", "merge": False}}).base.checkpoint == "best"


def test_a_resource_dumps_to_what_parses_again():
    experiment = read(EXPERIMENT)

    dumped = experiment.model_dump(mode="json", by_alias=True)

    assert dumped["dataset"] == "gsm8k"
    assert read({**dumped, "budget": EXPERIMENT["budget"]}) == experiment


def test_code_may_give_a_reference_as_a_value():
    assert (
        KINDS["Deployment"](kind="Deployment", name="d", experiment=Ref("e", version=2)).experiment.version
        == 2
    )
