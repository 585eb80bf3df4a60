"""A pull request of 300 changes whose comment has no room for all: what a reviewer must see is still there.

Twelve of the runs that it stops are really running: a worker of this test has claimed them.
"""

from __future__ import annotations

import re
import time

import httpx
import pytest
from ci_job import PULLED, connected, planned, repo, served
from github_api import LONGEST_BODY, github_api
from real_server import token_of

from arena_gitops.report.marker import Marker
from arena_runner.server.world import VERSION

__all__ = ["connected", "github_api", "repo", "served"]

pytestmark = pytest.mark.slow

RUNNING = [f"a-long-sweep-over-everything-there-is-to-try-run-{n:03}" for n in range(12)]
MORE = [f"another-sweep-over-everything-there-is-to-try-run-{n:03}" for n in range(288)]
STARTED = {"type": "started", "device": "cpu", "dtype": "float32", "threads": 1, "rows_in_flight": 8}
STARTED |= {"tokens_per_backward": 64, "versions": {}, "model": None, "members": 2, "max_steps": 96}


def sweep(repo, names, first_rate):
    """One experiment per name, each with a learning rate and a length of its own, and a long description."""
    folder = repo.root / "experiments"
    one = (folder / "word-problems-grpo.yaml").read_text()
    one = re.sub(r"tier: \S+", f"tier: {PULLED}", one)
    one = re.sub("description: .*", f"description: {'why it is tried ' * 12}", one)
    for n, name in enumerate(names):
        knobs = f"algorithm.lr: {first_rate + n}.0e-7, training.max_steps: {384 + 32 * n}"
        text = one.replace(f"{repo.name}-grpo", name) + f"set: {{{knobs}}}\n"
        (folder / f"{name}.yaml").write_text(text)


def start_all(served, names):
    """Begin every run of these experiments, as workers would."""
    headers = {"Authorization": f"Bearer {token_of(served, 'worker')}"}
    with httpx.Client(base_url=f"{served.url}/api/v1/workers/", headers=headers, timeout=60) as http:
        for n in range(len(names)):
            hello = {"worker_id": f"w-{n}", "hostname": "here", "tier": PULLED, "version": VERSION}
            assert http.post("register", json=hello).status_code == 200
            answer = http.post("claim", json={"worker_id": f"w-{n}", "tier": PULLED})
            assert answer.status_code == 200, answer.text
            claim = answer.json()
            event = {"seq": 1, "ts": time.time(), **STARTED}
            told = http.post(
                f"jobs/{claim['job']['run_id']}/{claim['job']['segment']}/events",
                json={"fence": claim["fence"], "events": [event]},
                headers={"Authorization": f"Bearer {claim['token']}"} if claim.get("token") else None,
            )
            assert told.status_code == 200, told.text


def test_three_hundred_changes_fit_and_nothing_that_matters_is_lost(connected, served, github_api):
    repo = connected
    repo.edit("arena.yaml", r"max_credits_per_pr: \S+", "max_credits_per_pr: 1000")
    sweep(repo, RUNNING, 1_000)
    repo.base = repo.commit("Twelve of them run")
    repo.arena("apply", "--target", "prod", "--yes")
    start_all(served, RUNNING)

    sweep(repo, RUNNING, 2_000)
    sweep(repo, MORE, 3_000)
    (repo.root / "deployments" / "word-problems.yaml").unlink()
    repo.commit("A sweep of everything")
    swept = planned(repo, 7)
    assert swept.code == 0, swept.out
    (body,) = github_api.bodies(7)
    assert len(body) <= LONGEST_BODY
    assert len(body.encode()) <= 60_000
    marker = Marker.find(body)
    assert marker.truncated, "else there was nothing to lose"
    assert marker.plan_id == swept.outputs["plan_id"]
    assert f"plan `{marker.plan_id}`" in body
    assert "288 to create, 12 new versions" in body
    assert "Cost: up to 723 credits" in body
    alarm = body.partition("[!CAUTION]")[2].partition("\n\n")[0]
    assert f"undeploys** deployment/{repo.name}" in alarm
    assert "stops a running run** of 12 experiments:" in alarm
    assert all(name in alarm for name in RUNNING)
    sight = body.partition("<details>")[0]
    assert "**288 experiments:**" in sight
    assert "up to 694.08 credits" in sight
    assert body.count("<details>") == body.count("</details>")
    assert len(re.findall(r"^`{3,}", body, re.MULTILINE)) % 2 == 0
    assert all(name in swept.summary for name in (*RUNNING, *MORE))
