"""A worker that is killed before or after any of its calls to the server costs a segment and nothing else.

`make test` takes a sample (`ARENA_COMMITS_SEED` draws another); `ARENA_EVERY_COMMIT=1` tries them all. What a server
does that is killed is in test_any_commit.py.
"""

import os
import random

import pytest

EVERY = os.environ.get("ARENA_EVERY_COMMIT") == "1"
SEED = int(os.environ.get("ARENA_COMMITS_SEED", "1"))
CALLS = 13
"""the claim, the start, two iterations that upload files and report them, the end"""
DEATHS = [(n, moment) for n in range(1, CALLS + 1) for moment in ("before", "after")][1:]
"""a worker that dies before its claim has taken nothing"""
LAST = (CALLS, "after")
EXPORTS = [(8, 1), (16, 0), (16, 1)]

pytestmark = pytest.mark.timeout(600 if EVERY else 120)


def test_a_worker_killed_at_a_call_costs_a_segment_and_nothing_else(shared_server, build):
    chosen = DEATHS if EVERY else random.Random(f"{SEED} calls").sample(DEATHS, 3)
    runs = {death: submit(shared_server, build, death) for death in chosen}
    wrong = {death: problem for death, run in runs.items() if (problem := look(shared_server, run, death))}
    assert wrong == {}


def submit(server, build, death):
    name = f"dies-{death[1]}-{death[0]}"
    return server.apply(name, build.experiment(name, seed=name, die_at=list(death)))["run"]["run_id"]


def look(server, run_id, death):
    """What is not as it should be once the run has ended."""
    run = server.wait_run(run_id, timeout_s=90)
    events = server.events(run_id)
    found = {
        "state": (run["state"], run["step"]),
        "segments": run["segments"],
        "exports": sorted((c["step"], c["member"]) for c in run["checkpoints"]),
        "order": [event["index"] for event in events],
        "ends": [event["event"]["type"] for event in events].count("finished"),
    }
    wanted = {
        "state": ("completed", 16),
        "segments": 1 if death == LAST else 2,
        "exports": EXPORTS,
        "order": list(range(1, len(events) + 1)),
        "ends": 1,
    }
    return {key: value for key, value in found.items() if value != wanted[key]}
