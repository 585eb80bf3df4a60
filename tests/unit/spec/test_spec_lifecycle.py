"""What kind of change each field is."""

from __future__ import annotations

import pytest

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.lifecycle import FieldClass, data_part, field_class, meta_part
from arena_gitops.spec.manifest import parse_manifest

SPEC = {
    "description": "first",
    "owner": "rl-team",
    "labels": {},
    "project": "p",
    "inputs": {
        "dataset": {"address": "dataset/d", "digest": "sha256:1", "column_mapping": {"question": "q"}},
        "reward": {"address": "reward/r", "files": {"rewards/r.py": "sha256:2"}, "cases": []},
        "environment": None,
    },
    "tier": "cpu",
    "num_nodes": 1,
    "budget": {"max_runtime_s": 60.0},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("manifest.training.max_steps", FieldClass.BUDGET),
        ("manifest.training.target_score", FieldClass.BUDGET),
        ("budget.max_credits", FieldClass.BUDGET),
        ("description", FieldClass.METADATA),
        ("labels.team", FieldClass.METADATA),
        ("lifecycle.protect", FieldClass.METADATA),
        ("manifest.environment.name", FieldClass.METADATA),
        ("tier", FieldClass.PLACEMENT),
        ("num_nodes", FieldClass.PLACEMENT),
        ("manifest.training.checkpoint_steps", FieldClass.OBSERVABILITY),
        ("manifest.algorithm.lr", FieldClass.SEMANTIC),
        ("manifest.training.evo_steps", FieldClass.SEMANTIC),
        ("manifest.training.pop_size", FieldClass.SEMANTIC),
        ("manifest.mutation.rl_hp_selection.lr.max", FieldClass.SEMANTIC),
        ("manifest.selection.tournament_size", FieldClass.SEMANTIC),
        ("inputs.reward.files.rewards/r.py", FieldClass.SEMANTIC),
        ("inputs.dataset.digest", FieldClass.SEMANTIC),
        ("inputs.base.checkpoint", FieldClass.SEMANTIC),
        ("inputs.base.files", FieldClass.DERIVED),
        ("name", FieldClass.IDENTITY),
        ("project", FieldClass.IDENTITY),
        ("a_field_of_the_future", FieldClass.SEMANTIC),
    ],
)
def test_the_class_of_a_field_of_an_experiment(path, expected):
    assert field_class("experiment", path) is expected


@pytest.mark.parametrize("kind", ["project", "dataset", "environment", "reward", "experiment", "deployment"])
def test_descriptions_are_metadata_of_every_kind(kind):
    assert field_class(kind, "description") is FieldClass.METADATA


def test_a_field_whose_name_begins_alike_is_another_field():
    assert field_class("experiment", "manifest.training.max_steps_per_day") is FieldClass.SEMANTIC


def test_the_data_part_holds_what_would_be_trained(grpo):
    spec = {**SPEC, "manifest": parse_manifest(grpo).manifest.normal()}

    part = data_part("experiment", spec)

    assert set(part) == {"inputs", "manifest"}
    assert "max_steps" not in part["manifest"]["training"]
    assert part["inputs"]["dataset"] == {"digest": "sha256:1", "column_mapping": {"question": "q"}}
    assert part["inputs"]["reward"] == {"files": {"rewards/r.py": "sha256:2"}}


def test_the_meta_part_holds_what_people_read():
    part = meta_part("experiment", SPEC)

    assert part["description"] == "first"
    assert "tier" not in part
    assert "budget" not in part


@pytest.mark.parametrize(
    ("path", "value", "same_data"),
    [
        (("manifest", "training", "max_steps"), 9_999, True),
        (("tier",), "gpu", True),
        (("description",), "second", True),
        (("manifest", "algorithm", "lr"), 9e-9, False),
        (("inputs", "dataset", "digest"), "sha256:9", False),
    ],
)
def test_only_a_semantic_change_moves_the_data_fingerprint(grpo, path, value, same_data):
    spec = {**SPEC, "inputs": {**SPEC["inputs"]}, "manifest": parse_manifest(grpo).manifest.normal()}
    before = fingerprint(data_part("experiment", spec), meta_part("experiment", spec)).data
    here = spec
    for part in path[:-1]:
        here[part] = dict(here[part])
        here = here[part]
    here[path[-1]] = value

    after = fingerprint(data_part("experiment", spec), meta_part("experiment", spec)).data

    assert (before == after) is same_data


def test_the_dialect_does_not_move_the_fingerprint(grpo):
    other = {**grpo, "training": {**grpo["training"], "max_steps": "1_000"}, "mutation": {}}
    other["algorithm"] = {**grpo["algorithm"], "lr": "1e-4", "adv_norm": "mean_std"}

    one, two = (
        data_part("experiment", {"manifest": parse_manifest(raw).manifest.normal()}) for raw in (grpo, other)
    )

    assert fingerprint(one, {}) == fingerprint(two, {})
