"""The acceptance cases that take a server: what nobody can tell, and an apply at hosted Arena."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from between import between
from hub import hub, parquet
from infra_repo import FILES, InfraRepo
from real_server import real_server

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.errors import RepoError
from arena_gitops.plan.model import Action
from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.report import text

ROOT = Path(__file__).resolve().parents[2]
REWARD = """
def reward(question, answer, completion):
    return float(answer.split()[-1] in completion.split())
"""
SILENT_S = 1.0
"""In place of the sixty seconds that a worker may be silent for."""
FALLS_SILENT = """
import json, os, sys, time, urllib.request
server, run = sys.argv[sys.argv.index("--server") + 1], sys.argv[sys.argv.index("--run") + 1]
def post(path, body):
    headers = {"Authorization": "Bearer " + os.environ["ARENA_WORKER_TOKEN"], "Content-Type": "application/json"}
    request = urllib.request.Request(server + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"{}")
claim = post("/api/v1/workers/claim", {"worker_id": "silent", "tier": "local", "run_id": run})
event = {"type": "started", "seq": 1, "ts": time.time(), "device": "cpu", "dtype": "float32", "threads": 1,
         "rows_in_flight": 8, "tokens_per_backward": 64, "versions": {}, "model": None, "members": 2, "max_steps": 8}
post("/api/v1/workers/jobs/" + run + "/" + str(claim["job"]["segment"]) + "/events",
     {"fence": claim["fence"], "events": [event]})
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One whose workers begin, and are never heard of again."""
    home = tmp_path_factory.mktemp("silent") / "server"
    worker = {"command": [sys.executable, "-c", FALLS_SILENT], "lease_s": SILENT_S}
    rows = [{"question": f"{n}+{n}?", "answer": f"#### {2 * n}"} for n in range(400)]
    tables = {f"main/{split}-0.parquet": parquet(rows) for split in ("train", "test")}
    with (
        hub({"openai/gsm8k": tables}) as url,
        real_server(home, worker=worker, hub={"endpoint": url}) as found,
    ):
        yield found


@pytest.fixture
def own(server):
    platform = HttpPlatform(server.url, server.token)
    yield platform
    platform.close()


@pytest.fixture
def hosted(server):
    """The same server, with nothing but the protocol of the published client."""
    with between(server.url) as proxy:
        proxy.before = lambda _method, path: (404, b"") if path.startswith("/api/v1") else None
        yield lambda book: ArenaCloudPlatform(proxy.url, server.token, book=book)


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_unknown_is_not_dead(own, tmp_path):
    """A run whose worker is silent is waited for, tried again by the server a few times, then held: never two runs."""
    rows = "question,answer\n" + "".join(f"{n}+{n}?,#### {2 * n}\n" for n in range(400))
    repo = InfraRepo.make(
        tmp_path / "infra", {**FILES, "datasets/data/sums.csv": rows, "rewards/exact.py": REWARD}
    )
    world = World(own)
    apply(world, plan(world, repo.load(), target="prod"), repo.load(), Consent.APPROVED)

    def run():
        return next(d.run for d in own.observe(repo.load().owner).resources.values() if d.run)

    made = until(lambda: run().state.value == "running" and run())
    while not (now := run()).state.ended:
        planned = plan(world, repo.load(), target="prod")
        assert not planned.has_changes
        apply(world, planned, repo.load(), Consent.APPROVED)
        assert now.run_id == made.run_id
        time.sleep(0.3)
    assert run().segments > 1
    held = next(c for c in plan(world, repo.load(), target="prod").changes if c.action is Action.HELD)
    assert "fell silent; gave up" in held.message
    assert [known.run_id for known in own.observe(repo.load().owner).runs.values()] == []


@pytest.mark.parametrize("name", ["infra-repo", "gsm8k-tutorial", "sft-then-grpo"])
def test_idempotent_at_hosted_arena(hosted, tmp_path, name):
    """Where nothing is kept but names, too: applied once, there is nothing to do."""
    repo = InfraRepo.make(tmp_path / name, {})
    shutil.copytree(ROOT / "examples" / name, repo.root, dirs_exist_ok=True)
    repo.commit()
    try:
        desired = repo.load()
    except RepoError as error:
        pytest.skip(f"the example needs files that are made first: {error.diagnostics[0].code}")
    world = World(hosted(desired.resources))
    first = plan(world, desired, target="prod")
    if not first.applyable:
        assert "start weights (base) cannot be given on this platform" in text.render(first)
        return
    apply(world, first, desired, Consent.APPROVED)
    again = plan(World(hosted(desired.resources)), desired, target="prod")
    assert not again.has_changes, text.render(again)
