"""Jobs and events: what travels between server and worker."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from arena_gitops.spec.job import JOB_EVENT, Checkpoint, JobInputs, JobSpec, RunState

DIGEST = "sha256:" + "0" * 64
CHECKPOINT = {
    "step": 96,
    "member": 2,
    "generation": 1,
    "fitness": 0.5,
    "digest": DIGEST,
    "files": {"adapter_model.safetensors": DIGEST},
    "size_bytes": 10,
}
LINEAGE = {
    "generation": 1,
    "step": 96,
    "member": 0,
    "parent": 2,
    "mutation": "lr",
    "old": 1e-4,
    "new": 1.2e-4,
}
EVENTS = [
    {"type": "progress", "member": 0, "step": 8, "max_steps": 96, "iteration": 1}
    | dict.fromkeys(["reward", "tokens_per_second", "eta_seconds"]),
    {"type": "metrics", "member": None, "step": 8, "values": {"loss": 0.1}},
    {"type": "evaluation", "member": 0, "step": 8, "generation": 0, "fitness": 0.25},
    {"type": "evolution", "generation": 1, "records": [{**LINEAGE, "fitness": 0.1, "parent_fitness": 0.5}]},
    {"type": "checkpoint", "checkpoint": CHECKPOINT},
    {"type": "resume_state", "state": {"iteration": 3, "files": {"state.json": DIGEST}}},
    {"type": "sample", "member": 0, "step": 8, "prompt": "p", "completion": "c", "reward": 1.0},
    {"type": "log", "level": "info", "message": "m"},
    {"type": "finished", "state": "failed", "reason": "oom", "message": "m"},
]


@pytest.mark.parametrize("raw", EVENTS, ids=lambda raw: raw["type"])
def test_an_event_travels_as_json_and_comes_back(raw):
    event = JOB_EVENT.validate_python({"seq": 1, "ts": 0.0, **raw})

    assert event.type == raw["type"]
    assert JOB_EVENT.validate_json(event.model_dump_json()) == event


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "unknown"},
        {"type": "log", "level": "loud", "message": "m"},
        {"type": "metrics", "member": 0, "step": 1, "values": {"loss": float("nan")}},
        {"type": "finished", "state": "running"},
        {"type": "checkpoint", "checkpoint": {**CHECKPOINT, "digest": "sha256:12"}},
    ],
    ids=lambda raw: raw["type"],
)
def test_what_is_no_event_is_refused(wrong):
    with pytest.raises(ValidationError):
        JOB_EVENT.validate_python({"seq": 1, "ts": 0.0, **wrong})


def test_a_checkpoint_is_named_by_step_and_member():
    assert Checkpoint.model_validate(CHECKPOINT).label == "step_96/m2"


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_has_ended_needs_a_new_decision(state):
    assert state.ended is (state in {"completed", "stopped", "failed"})


def test_a_job_carries_its_manifest_and_refuses_what_nobody_declared():
    raw = {
        "run_id": "r1",
        "segment": 0,
        "experiment": "e",
        "fingerprint": DIGEST,
        "manifest": {"algorithm": {"name": "GRPO"}},
        "inputs": {},
        "model": {"id": "someone/tiny"},
        "seed": 42,
        "tier": "cpu",
    }

    assert JobSpec.model_validate(raw).inputs == JobInputs()
    with pytest.raises(ValidationError, match="extra_forbidden"):
        JobSpec.model_validate({**raw, "secret": "x"})
