"""The platforms the contract suite runs against: one in memory, one real server in a process of its own."""

import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
from between import between
from hosted_arena import CANNOT
from stacks import Stack

from arena_gitops.platforms.arena_cloud.platform import ArenaCloudPlatform
from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript

NO_MLFLOW = "http://127.0.0.1:9"  # the discard port: nobody answers
IDLE_WORKER = [sys.executable, "-c", "import signal; signal.pause()"]
"""Takes no job, so that every run stays queued and the suite is about the platform alone."""
SERIAL = itertools.count(1)


def pytest_collection_modifyitems(config, items):
    """These are not run on it at all; `test_the_table_of_arena_cloud` looks after the list."""
    left_out = [
        i for i in items if "arena_cloud" in i.name and {i.name, i.name.partition("[")[0]} & CANNOT.keys()
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def announced(home, process, timeout_s=60.0):
    """What the server wrote down when it was ready."""
    deadline = time.monotonic() + timeout_s
    path = home / "server.json"
    while not (path.exists() and json.loads(path.read_text()).get("pid") == process.pid):
        assert process.poll() is None, (home / "server.log").read_text()
        assert time.monotonic() < deadline, "the server did not get ready"
        time.sleep(0.05)
    return json.loads(path.read_text())


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Address and token of one real server for the whole suite."""
    home = tmp_path_factory.mktemp("contract") / "home"
    home.mkdir()
    (home / "settings.yaml").write_text(json.dumps({"worker": {"command": IDLE_WORKER}}))
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(home)]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen([*command, "--mlflow-uri", NO_MLFLOW], stdout=log, stderr=log)
    try:
        note = announced(home, process)
        yield f"http://127.0.0.1:{note['port']}", note["token"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture(scope="session")
def in_memory():
    return MemoryPlatform(runs=RunScript.stays_queued())


@pytest.fixture(scope="session")
def arena_only(served):
    """The same server, with nothing but the protocol of the published client."""
    with between(served[0]) as proxy:
        proxy.before = lambda _method, path: (404, b"") if path.startswith("/api/v1") else None
        yield proxy.url, served[1]


@pytest.fixture(params=["memory", "http", "arena_cloud"])
def platform(request):
    if request.param == "memory":
        yield request.getfixturevalue("in_memory")
        return
    if request.param == "arena_cloud":
        door = ArenaCloudPlatform(*request.getfixturevalue("arena_only"))
    else:
        door = HttpPlatform(*request.getfixturevalue("served"))
    yield door
    door.close()


@pytest.fixture
def stack():
    """A stack nobody else has, in a namespace of its own."""
    number = next(SERIAL)
    return Stack(name=f"team-{number}", namespace=f"space-{number}")


@pytest.fixture
def unique():
    """A change to a manifest that makes its training nobody else's."""
    return {"mutation.rand_seed": next(SERIAL) + 1000}
