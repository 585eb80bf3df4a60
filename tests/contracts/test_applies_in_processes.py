"""`arena apply` as a process before a real server: killed, interrupted, kept waiting, and the next one goes on."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from between import between
from patience import LONG, slowed
from repos import commit, write

from arena_gitops.apply.journal import unresolved
from arena_gitops.cli.main import run
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.spec.wire import Owner

ARENA = Path(sys.executable).parent / "arena-gitops"
MORTAL = Path(__file__).resolve().parents[1] / "support" / "mortal_apply.py"
SERIAL = itertools.count(1)


@pytest.fixture
def proxy(served):
    with between(served[0]) as found:
        yield found


class Desk:
    """Somebody's checkout, and commands in it."""

    def __init__(self, root, proxy, token, home):
        number = next(SERIAL)
        self.stack, self.namespace = f"desk-{number}", f"desk-{number}"
        self.proxy, self.token = proxy, token
        self.root = commit(write(root / "repository", stack=self.stack, seed=1000 * number))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "GITHUB_")) and k != "CI"},
            "ARENA_BASE_URL": proxy.url,
            "ARENA_API_KEY": token,
            "HOME": str(home),
        }

    def start(self, *args):
        return subprocess.Popen(
            [ARENA, *args, "--namespace", self.namespace],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *args, code=0):
        process = self.start(*args)
        out, _ = process.communicate(timeout=LONG)
        assert process.returncode == code, out
        return out

    def state(self):
        platform = HttpPlatform(self.proxy.upstream, self.token)
        state = platform.observe(Owner(stack=self.stack, namespace=self.namespace))
        platform.close()
        return state

    def runs(self):
        """How many runs each experiment's work has."""
        state = self.state()
        mine = {d.fingerprint.run: a.name for a, d in state.resources.items() if a.kind == "experiment"}
        return Counter(mine[run.fingerprint] for run in state.runs.values() if run.fingerprint in mine)


@pytest.fixture
def desk(tmp_path, proxy, served):
    return Desk(tmp_path, proxy, served[1], tmp_path)


@pytest.mark.parametrize(("side", "change"), [("after", 1), ("before", 5), ("after", 6)])
def test_killed_at_a_change_the_same_command_goes_on_and_trains_each_once(desk, side, change):
    """`before`: the change was written into the journal and never arrived; `after`: it arrived, unanswered."""
    killed, process = threading.Event(), []

    def kill(_method, path, *_status):
        if "/resources/" not in path or len(desk.proxy.changes()) != change:
            return None
        process[0].kill()
        process[0].wait(LONG)
        killed.set()
        return 503, b"nobody reads this"

    setattr(desk.proxy, side, kill)
    process.append(desk.start("apply", "--yes", "--parallelism", "1"))
    assert killed.wait(LONG)
    desk.proxy.quiet()
    out = desk.run("apply", "--yes")
    assert "an earlier apply was cut off at create" in out
    assert "gave back the lease of an earlier apply here that was killed" in out
    assert desk.runs() == {"e0": 1, "e1": 1}
    desk.run("plan", "--expect-no-changes")


CHANGES = 4
"""Of the repository with one experiment and nothing deployed: project, dataset, reward, experiment."""
POINTS = [
    f"{moment}:{line}"
    for line in range(1, 2 * CHANGES + 1)
    for moment in ("before", "torn", "after")
    if moment != "after"
    or line % 2
    or line == 2 * CHANGES  # a result is followed by the next intent: `before`
]
"""Every place at which a journal of an intent and a result for each change can end."""


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_its_journal_the_same_command_goes_on(served, tmp_path, monkeypatch, point):
    """It kills itself, with signal 9; afterwards there is one run, no intent is open, and nothing is left to do."""
    url, token = served
    name = f"mortal-{next(SERIAL)}"
    root = write(tmp_path / "repository", stack=name, seed=1_000_000 + next(SERIAL), experiments=1)
    (root / "deployments" / "e0.yaml").unlink()
    monkeypatch.chdir(commit(root))
    for variable in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in (
        ("ARENA_BASE_URL", url),
        ("ARENA_API_KEY", token),
        ("HOME", tmp_path),
        ("DIE_AT", point),
    ):
        monkeypatch.setenv(variable, str(value))
    command = ["apply", "--yes", "--parallelism", "1", "--namespace", name]
    died = subprocess.run([sys.executable, MORTAL, *command], capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert run(command) == 0
    assert run(["plan", "--expect-no-changes", "--namespace", name]) == 0
    state = httpx.get(
        f"{url}/api/v1/state",
        params={"stack": name, "namespace": name},
        headers={"Authorization": f"Bearer {token}"},
    ).json()
    (mine,) = [resource["run"] for resource in state["resources"] if resource["run"]]
    assert len(state["resources"]) == CHANGES
    same = [known["run_id"] for known in state["runs"] if known["fingerprint"] == mine["fingerprint"]]
    assert same == [mine["run_id"]]
    (journal,) = (root / ".git" / "arena").glob(f"*@{name}.ndjson")
    assert unresolved(journal) == ()


HANGING = {
    "the state": lambda _method, path: path.startswith("/api/v1/state"),
    "the lease": lambda method, path: (method, path) == ("POST", "/api/v1/leases"),
    "a check": lambda _method, path: path.endswith("/checks"),
    "a change": lambda method, path: method == "PUT" and "/resources/" in path,
    "the end of the lease": lambda method, path: method == "DELETE" and "/leases/" in path,
}


@pytest.mark.parametrize(
    ("where", "number"),
    [*((where, signal.SIGTERM) for where in HANGING), ("a change", signal.SIGINT)],
    ids=lambda value: getattr(value, "name", value),
)
def test_asked_to_stop_while_the_server_hangs_it_ends_within_five_seconds(desk, where, number):
    hanging, release = threading.Event(), threading.Event()

    def hang(method, path):
        if HANGING[where](method, path):
            hanging.set()
            release.wait(LONG)

    desk.proxy.before = hang
    process = desk.start("apply", "--yes")
    assert hanging.wait(LONG)
    began = time.monotonic()
    process.send_signal(number)
    out, _ = process.communicate(timeout=LONG)
    took = time.monotonic() - began
    release.set()
    assert took < 5 * slowed(), out
    finished = where == "the end of the lease"  # everything was done by then
    assert process.returncode == (0 if finished else 128 + number), out
    assert "Traceback" not in out


def test_a_second_signal_ends_it_at_once(desk):
    hanging, release = threading.Event(), threading.Event()

    def hang(method, path):
        if HANGING["a change"](method, path):
            hanging.set()
            release.wait(LONG)

    desk.proxy.before = hang
    process = desk.start("apply", "--yes")
    assert hanging.wait(LONG)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LONG)
    release.set()
    assert time.monotonic() - began < 2 * slowed()
    assert process.returncode == 130, out


def test_a_second_apply_is_told_who_is_at_work_and_ends_with_5(desk):
    hanging, release = threading.Event(), threading.Event()

    def hang(method, path):
        if HANGING["a check"](method, path):
            hanging.set()
            release.wait(LONG)

    desk.proxy.before = hang
    first = desk.start("apply", "--yes")
    assert hanging.wait(LONG)
    out = desk.run("apply", "--yes", "--lock-timeout", "0", code=5)
    assert "holds it for apply since" in out
    assert "arena unlock" in out
    out = desk.run("unlock", code=64)
    assert "add --yes" in out
    assert "unlocked" in desk.run("unlock", "--yes")
    assert "nobody holds" in desk.run("unlock", "--yes")
    release.set()
    desk.proxy.quiet()
    out, _ = first.communicate(timeout=LONG)
    assert first.returncode == 5, out
    assert "the lease" in out
    assert desk.state().resources == {}
