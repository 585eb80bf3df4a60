"""What travels as JSON is accepted by the models and by the published schemas alike, or refused by both."""

import json
from copy import deepcopy

from any_stack import applied, stacks
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from places import ROOT, SCHEMA
from pydantic import ValidationError

from arena_gitops.app import World, plan
from arena_gitops.plan.model import Plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.spec.job import JOB_EVENT, JobSpec

OTHER = st.sampled_from(["x", "", {}, [], None, 1.5, -7, 7])
"""Values that neither side takes for another type: a model reads `true` as 1, a schema does not."""
PLANS = Draft202012Validator(SCHEMA)
DIGEST = "sha256:" + "0" * 64
LINEAGE = {
    "generation": 1, "step": 96, "member": 0, "parent": 2, "mutation": "lr", "old": 1e-4, "new": 1.2e-4,
    "fitness": 0.1, "parent_fitness": 0.5, "paired_se": 0.1,
}  # fmt: skip
CHECKPOINT = {
    "step": 96, "member": 2, "generation": 1, "fitness": 0.5, "digest": DIGEST, "files": {"a.bin": DIGEST},
    "size_bytes": 10, "hyperparameters": {"lr": 0.1},
}  # fmt: skip
SCORES = {
    "label": "best",
    "rows": 8,
    "mean": {"reward": 0.5},
    "stderr": {"reward": 0.1},
    "step": 8,
    "member": 1,
}
STARTED = {
    "device": "cpu", "dtype": "float32", "threads": 1, "rows_in_flight": 8, "tokens_per_backward": 64,
    "engine": "torch", "versions": {"torch": "2.13"}, "model": {"id": "tiny", "revision": None}, "members": 2,
    "max_steps": 8, "resumed_at_iteration": None, "request_id": None,
}  # fmt: skip
AT = {"member": 0, "step": 8}
EVENTS = {
    "started": STARTED,
    "progress": {
        **AT,
        "max_steps": 96,
        "iteration": 1,
        "reward": 0.5,
        "tokens_per_second": None,
        "eta_seconds": 1.5,
    },
    "metrics": {"member": None, "step": 8, "values": {"loss": 0.1}},
    "evaluation": {**AT, "generation": 0, "fitness": 0.25, "values": {"x": 1.5}},
    "evolution": {"generation": 1, "records": [LINEAGE]},
    "checkpoint": {"checkpoint": CHECKPOINT},
    "resume_state": {"state": {"iteration": 3, "files": {"state.json": DIGEST}}},
    "test_scores": {"scores": SCORES},
    "sample": {**AT, "prompt": "p", "completion": "c", "reward": 1.5},
    "replay": {**AT, "steps": 5, "reward": 1.5, "files": {"replay.gif": DIGEST}},
    "log": {"level": "info", "message": "m"},
    "finished": {"state": "failed", "reason": "oom", "message": "m"},
}
DATASET = {
    "address": "dataset/d", "category": "reasoning", "column_mapping": {"question": "q"}, "digest": DIGEST,
    "format": "csv", "hf": {"id": "o/d", "config": None, "split": "train", "revision": "a" * 40},
}  # fmt: skip
REWARD = {
    "address": "reward/r", "files": {"r.py": DIGEST}, "entry": "r.py", "function": "reward", "requirements": ["x"],
    "network": "none", "secrets": ["K"],
    "cases": [{"question": "q", "answer": "a", "completion": "c", "expect": 1.5}],
}  # fmt: skip
ENVIRONMENT = {
    "address": "environment/e", "gym_id": None, "files": {"e.py": DIGEST}, "entrypoint": "e:E",
    "multi_agent": False, "requirements": ["x"], "env_config": {"a": 1},
}  # fmt: skip
BASE = {"experiment": "b", "checkpoint": "best", "merge": False, "files": {"a.bin": DIGEST}}
JOB = {
    "run_id": "r_1", "segment": 0, "experiment": "exp", "fingerprint": "f", "seed": 1, "tier": "local",
    "manifest": {"algorithm": {"name": "GRPO"}}, "model": {"id": "tiny", "revision": None}, "request_id": "x",
    "inputs": {"dataset": DATASET, "reward": REWARD, "environment": ENVIRONMENT, "base": BASE},
    "limits": {"max_steps": 8, "max_runtime_s": 1.5}, "resume": {"iteration": 1, "files": {"a.bin": DIGEST}},
}  # fmt: skip
DOCUMENTS = {
    "job": (JobSpec.model_validate_json, [JOB]),
    "event": (
        JOB_EVENT.validate_json,
        [{"type": name, "seq": 1, "ts": 0.5, **event} for name, event in EVENTS.items()],
    ),
}
"""Name of the schema → what reads such a document, and one of each sort with every field written."""


def paths(value, at=()):
    """Every place in a document."""
    yield at
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths(inner, (*at, key))


def changed(document, path, how, other):
    """The document with one place replaced, left out, or given one field more."""
    document = deepcopy(document)
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    if how == "replace":
        place[last] = other
    elif how == "leave out":
        del place[last]
    elif isinstance(place[last], dict):
        place[last]["extra"] = other
    return document


VALID = {
    name: Draft202012Validator(json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text()))
    for name in DOCUMENTS
}


def accepts(read, document):
    """Whether the model takes it."""
    try:
        read(json.dumps(document))
    except ValidationError:
        return False
    return True


@given(stacks(), stacks(), st.data())
@settings(max_examples=120, deadline=None)
def test_a_plan_is_one_for_the_model_and_for_the_schema(first, second, data):
    world = World(MemoryPlatform())
    applied(world, first)
    document = json.loads(plan(world, second.state(), target="local").to_json())
    assert PLANS.is_valid(document)
    path = data.draw(st.sampled_from([path for path in paths(document) if path]))
    how = data.draw(st.sampled_from(["replace", "leave out", "add to"]))
    document = changed(document, path, how, data.draw(OTHER))
    assert PLANS.is_valid(document) is accepts(Plan.from_json, document), (path, how)


@given(st.sampled_from(sorted(DOCUMENTS)), st.data())
@settings(max_examples=300, deadline=None)
def test_a_job_and_an_event_are_one_for_the_model_and_for_the_schema(name, data):
    read, documents = DOCUMENTS[name]
    document = data.draw(st.sampled_from(documents))
    path = data.draw(st.sampled_from([path for path in paths(document) if path]))
    how = data.draw(st.sampled_from(["replace", "leave out", "add to"]))
    document = changed(document, path, how, data.draw(OTHER))
    assert VALID[name].is_valid(document) is accepts(read, document), (path, how)


def test_every_sort_of_event_is_among_them():
    told = json.loads((ROOT / "schemas" / "event.schema.json").read_text())["discriminator"]["mapping"]
    assert set(EVENTS) == set(told)
    for name, (read, documents) in DOCUMENTS.items():
        assert all(VALID[name].is_valid(document) and accepts(read, document) for document in documents)
