"""The JSON Schemas are fresh, valid, and accept what the models accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from arena_gitops.spec import schema
from arena_gitops.spec.job import COLUMNS
from arena_gitops.spec.kinds import ADDRESS_KIND, KINDS
from arena_gitops.spec.stack import Stack

COMMITTED = Path(__file__).resolve().parents[3] / "schemas"
MODELS = {ADDRESS_KIND[name]: model for name, model in KINDS.items()} | {"stack": Stack}
SCHEMAS = schema.schemas()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_committed_schema_is_fresh(name):
    """When this fails: make schemas."""
    assert (COMMITTED / f"{name}.schema.json").read_text(encoding="utf-8") == schema.rendered(SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_a_valid_schema(name):
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("name", ["first_dialect", "second_dialect", "current_dialect", "rows", "classic"])
def test_the_manifest_schema_accepts_every_dialect(manifest_of, name):
    validator = Draft202012Validator(SCHEMAS["manifest"])

    assert list(validator.iter_errors(manifest_of(name))) == []


def test_the_manifest_schema_refuses_an_unknown_key(grpo):
    grpo["training"]["max_stepz"] = 3

    assert list(Draft202012Validator(SCHEMAS["manifest"]).iter_errors(grpo))


def test_an_editor_is_told_what_a_field_means():
    gate = SCHEMAS["deployment"]["$defs"]["Gate"]["properties"]

    assert gate["min_delta"]["description"].startswith("better than what serves now")


# Values a field may have, and values it may not; numbers are written as numbers, because a schema cannot
# compare the digits of `"1_000"` with a bound.
WORDS = st.sampled_from(
    ["gsm8k", "a-b", "Upper", "a@v3", "a@v0", "best", "step_3/m1", "@x", "", "../m.yaml", "/x"]
)
SCALARS = st.one_of(WORDS, st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([0.5, -1.5, 2.0]))
FILES = st.sampled_from(["a.csv", "data/a.jsonl", "/a.csv", "a.txt", "r.py", "../r.py", "x/r.pyc", 3, None])
ROLES = sorted({role for columns in COLUMNS.values() for role in columns})
FIELDS = {
    "kind": st.sampled_from([*KINDS, "Thing"]),
    "category": st.sampled_from([*(category.value for category in COLUMNS), "other"]),
    "column_mapping": st.one_of(
        st.sampled_from([dict.fromkeys(columns, "c") for columns in COLUMNS.values()]),
        st.dictionaries(st.sampled_from([*ROLES, "x"]), st.sampled_from(["c", "", 1]), max_size=3),
    ),
    "file": FILES,
    "hf": st.one_of(
        st.none(),
        st.fixed_dictionaries({"id": WORDS}, optional={"revision": st.sampled_from(["0" * 40, "v1", None])}),
    ),
    "requirements": st.one_of(st.lists(WORDS, max_size=2), WORDS),
    "secrets": st.lists(
        st.sampled_from(["KEY", "key", "${secret:KEY}", "${secret:key}", "${secret:}"]), max_size=2
    ),
    "entrypoint": st.sampled_from(["m:C", "m.n:C", "m", ":C"]),
    "network": st.sampled_from(["none", "full", "half", {}]),
    "cases": st.lists(
        st.fixed_dictionaries({"question": WORDS, "answer": WORDS, "completion": WORDS, "expect": SCALARS}),
        max_size=1,
    ),
    "set": st.dictionaries(st.sampled_from(["a.b", "a", "training.max_steps"]), SCALARS, max_size=2),
    "base": st.fixed_dictionaries({"experiment": WORDS}, optional={"checkpoint": WORDS, "merge": SCALARS}),
    "budget": st.fixed_dictionaries(
        {}, optional={"max_runtime": st.sampled_from(["6h", "6", None, 6]), "max_credits": SCALARS}
    ),
    "retry": st.fixed_dictionaries(
        {}, optional={"max": SCALARS, "on": st.lists(st.sampled_from(["failed", "late"]), max_size=2)}
    ),
    "gate": st.one_of(
        st.none(), st.fixed_dictionaries({}, optional={"metric": WORDS, "min": SCALARS, "min_delta": SCALARS})
    ),
    "strategy": st.fixed_dictionaries({}, optional={"type": st.sampled_from(["blue_green", "canary"])}),
    "lifecycle": st.fixed_dictionaries({}, optional={"protect": SCALARS}),
    "labels": st.dictionaries(WORDS, SCALARS, max_size=2),
    "targets": st.dictionaries(
        WORDS,
        st.fixed_dictionaries(
            {"platform": st.sampled_from(["local", "http", "X"])},
            optional={"url": st.sampled_from(["http://x", "x", None]), "runner": WORDS},
        ),
        max_size=2,
    ),
    "default_target": st.none(),  # that it is one of the targets is beyond a schema
    "policy": st.fixed_dictionaries(
        {},
        optional={
            "max_credits_per_pr": SCALARS,
            "max_credits_increase_percent": SCALARS,
            "require_owner": SCALARS,
            "reward_secrets": st.lists(WORDS, max_size=2) | SCALARS,
        },
    ),
    "roots": st.lists(WORDS, max_size=2),
    "preview": st.fixed_dictionaries({}, optional={"max_steps": SCALARS}),
    "moved": st.lists(
        st.fixed_dictionaries(
            {"from": st.sampled_from(["experiment/a", "deployment/a", "a", 1])},
            optional={"to": st.sampled_from(["experiment/b", None]), "why": WORDS},
        ),
        max_size=2,
    ),
    "num_nodes": SCALARS,
    "rerun": SCALARS,
}


GOOD = {
    "project": {},
    "dataset": {
        "category": "sft",
        "file": "a.csv",
        "column_mapping": {"prompt": "p", "target": "t"},
    },
    "environment": {"entrypoint": "m:C"},
    "reward": {"file": "r.py"},
    "experiment": {"manifest": "m.yaml", "dataset": "gsm8k"},
    "deployment": {"experiment": "e"},
    "stack": {},
}


@st.composite
def documents(draw, name):
    """A good document with up to three fields drawn anew and perhaps one left out."""
    model = MODELS[name]
    keys = [field.alias or key for key, field in model.model_fields.items()]
    document = {"name": "good", **GOOD[name]} | ({"kind": model.__name__} if "kind" in keys else {})
    for key in draw(st.lists(st.sampled_from([*keys, "extra"]), max_size=3)):
        document[key] = draw(FIELDS.get(key, SCALARS))
    document.pop(draw(st.sampled_from([*keys, *[None] * len(keys)])), None)
    return document


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_model_and_schema_accept_the_same_documents(name, data):
    document = data.draw(documents(name))

    try:
        MODELS[name].model_validate(document)
        accepted = True
    except ValidationError:
        accepted = False

    errors = [error.message for error in Draft202012Validator(SCHEMAS[name]).iter_errors(document)]
    assert accepted is (not errors), (document, errors)
