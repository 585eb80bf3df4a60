"""A server that is killed at any commit loses nothing and does nothing twice.

The story is a whole one: an experiment and its deployment are asked for, a worker trains, the run completes, its
best checkpoint is registered, loaded, probed and served. The server dies before or after its Nth commit, alone or
with its worker; another one takes over; the client asks again with the same keys, as `arena apply` does. At the end
everything is there exactly once.

`make test` takes a sample (`ARENA_COMMITS_SEED` draws another); `ARENA_EVERY_COMMIT=1` tries them all, `=30` those from
the thirtieth on.
"""

import hashlib
import itertools
import json
import os
import random
import signal
from pathlib import Path

import httpx
import pytest

from arena_runner.server.artifacts import BlobStore
from arena_runner.server.home import Home
from arena_runner.server.keys import keys_of
from arena_runner.server.mlflow_process import secret_path
from arena_runner.server.registry import model_name

HERE = Path(__file__).parent
FIRST = int(os.environ.get("ARENA_EVERY_COMMIT", "0"))
EVERY = FIRST > 0
SEED = int(os.environ.get("ARENA_COMMITS_SEED", "1"))
COMMITS = 25
"""how many the story has without MLflow, its end included; a death after the last one is none"""
EXPORTS = [(8, 1), (16, 0), (16, 1)]
"""what the scripted worker exports in 16 steps of two members"""

pytestmark = pytest.mark.timeout(7200 if EVERY else 300)


class Story:
    """One home, one experiment; told until its end, with as many servers as it takes."""

    def __init__(self, server, build):
        self.server, self.build = server, build
        self.name = f"story-{server.home.name}"
        server.entry = (str(HERE / "mortal_server.py"),)
        server.variables = {"COMMITS": str(server.home / "commits")}

    def begin(self, die_at):
        """Start a server that dies at that commit; False if it did so before it was ready."""
        self.server.variables["DIE_AT"] = die_at
        self.server.launch()
        process = self.server.process
        self.build.until(
            lambda: process.poll() is not None or self.server.announcement().get("pid") == process.pid
        )
        if process.poll() is None:
            self.server.connect()
        return process.poll() is None

    def tell(self):
        """Ask for everything, and wait until it is there."""
        self._ask()
        self.build.until(self._over, 90)

    def _ask(self):
        body, chat = self.build.experiment(self.name, seed=self.name), self.build.deployment(self.name)
        self.run_id = self.server.apply(self.name, body, key="k-experiment")["run"]["run_id"]
        self.server.apply(self.name, chat, kind="deployment", key="k-deployment")

    def _over(self):
        run = self.server.run(self.run_id)
        assert run["state"] not in {"failed", "stopped"}, run
        serving = self.server.resource(f"deployment/{self.name}")["deployment"]["state"] == "serving"
        return run["state"] == "completed" and serving and self._registered()

    def _registered(self):
        return self.server.mlflow.endswith(":9") or len(self.rows("registrations", "step, member")) == len(
            EXPORTS
        )

    def log(self):
        """What its servers wrote; nothing, if none came so far."""
        path = self.server.home / "server.log"
        return path.read_text() if path.exists() else ""

    def rows(self, table, columns):
        """Everything a table holds."""
        return [tuple(row) for row in self.server.rows(f"select {columns} from {table} order by {columns}")]

    def kill_worker(self):
        """Kill what trains, as a machine that dies would."""
        for proc in Path("/proc").iterdir():
            if proc.name.isdigit() and _is_worker_of(proc, self.server.home):
                os.kill(int(proc.name), signal.SIGKILL)

    def check(self):
        """Everything is there once."""
        run = self.server.run(self.run_id)
        assert (run["state"], run["step"], run["reason"]) == ("completed", 16, None)
        assert self.rows("runs", "id") == [(self.run_id,)]
        assert self.rows("resources", "kind, name, version") == [
            ("deployment", self.name, 1),
            ("experiment", self.name, 1),
        ]
        assert self.rows("checkpoints", "step, member") == EXPORTS
        assert self.rows("revisions", "number, state") == [(1, "serving")]
        self._check_events()
        self._check_files()
        answer = self.server.http.post(f"/i/{self.name}/generate", json={"prompts": ["hi"]})
        assert answer.json()["results"][0]["completion"].startswith(f"{self.name}.r1"), answer.text
        if not self.server.mlflow.endswith(":9"):
            self._check_mlflow()

    def _check_events(self):
        events = self.rows("events", "position, segment, seq, type")
        assert [position for position, *_ in events] == list(range(1, len(events) + 1))
        for segment in {segment for _, segment, *_ in events}:
            numbers = [seq for _, own, seq, _ in events if own == segment]
            assert numbers == list(range(1, len(numbers) + 1))
        assert [kind for *_, kind in events].count("finished") == 1

    def _check_files(self):
        blobs = BlobStore(self.server.home / "blobs")
        for files in (json.loads(text) for (text,) in self.rows("checkpoints", "cast(files as text)")):
            for digest in files.values():
                found = hashlib.sha256(blobs.existing(digest).read_bytes()).hexdigest()
                assert digest == f"sha256:{found}"
        assert (
            not list((self.server.home / "blobs").rglob(".incoming-*")) or self.server.process.poll() is None
        )

    def _check_mlflow(self):
        with httpx.Client(base_url=f"{self.server.mlflow}/api/2.0/mlflow") as mlflow:
            wanted = {"filter": f"name = '{model_name('main', self.name)}'", "max_results": 100}
            versions = mlflow.get("/model-versions/search", params=wanted).json()["model_versions"]
            tags = [{tag["key"]: tag["value"] for tag in version["tags"]} for version in versions]
            assert sorted((int(tag["step"]), int(tag["member"])) for tag in tags) == EXPORTS
            names = {"experiment_name": "arith"}
            experiment = mlflow.get("/experiments/get-by-name", params=names).json()["experiment"][
                "experiment_id"
            ]
            ours = {"experiment_ids": [experiment], "filter": f"tags.`arena.run` = '{self.run_id}'"}
            assert len(mlflow.post("/runs/search", json=ours).json()["runs"]) == 3, "the run and two members"


def _is_worker_of(proc, home):
    try:
        mine = f"ARENA_HOME={home}".encode() in (proc / "environ").read_bytes()
        return mine and b"scripted_worker" in (proc / "cmdline").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def deaths(how, salt):
    """The commits to die at: some of the first ones, or all there are (the story in which nobody dies is the last)."""
    return (
        itertools.count(FIRST)
        if EVERY
        else random.Random(f"{SEED} {salt}").sample(range(1, COMMITS + 1), how)
    )


def survive(story, die_at, *, with_worker):
    """Die, take over, ask again; whether it never came to that commit, not even while stopping in good order."""
    alive = story.begin(die_at)
    try:
        if alive:
            story.tell()
            story.check()
            story.server.stop()
            alive = story.server.process.returncode == 0
    except httpx.TransportError:
        story.server.process.wait(60)
        alive = False
    if not alive:
        if with_worker:
            story.kill_worker()
        story.begin("never:0")
        story.tell()
        story.check()
    return alive


def try_all(make, build, moment, numbers, *, with_worker):
    """Which of these deaths did harm, and what."""
    failed = {}
    for n in numbers:
        story = Story(make(f"{moment}-{n}"), build)
        try:
            if survive(story, f"{moment}:{n}", with_worker=with_worker) and EVERY:
                print(f"nobody died at commit {n}: that was all of them")  # noqa: T201
                return failed
        except Exception as problem:  # noqa: BLE001 - all of them are tried, and told together
            failed[n] = problem
            if EVERY:
                print(f"{moment} {n}: {problem}\n{story.log()[-2000:]}")  # noqa: T201
        finally:
            story.server.stop()
    return failed


@pytest.mark.parametrize("with_worker", [False, True], ids=["alone", "with its worker"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_killed_at_a_commit_loses_nothing_and_does_nothing_twice(
    make_server, build, databases, moment, with_worker
):
    numbers = deaths(1, f"{databases.kind} {moment} {with_worker}")
    assert try_all(make_server, build, moment, numbers, with_worker=with_worker) == {}


@pytest.mark.parametrize(
    "moment", ["before", "after"] if EVERY else [random.Random(SEED).choice(["before", "after"])]
)
def test_with_mlflow_nothing_is_registered_twice(make_server, build, tracking_server, databases, moment):
    record = json.loads((tracking_server.home / "processes/mlflow.json").read_text())
    secret = secret_path(keys_of(Home(tracking_server.home)))
    mlflow = f"http://127.0.0.1:{record['port']}{secret}"
    make = lambda name: make_server(f"{databases.kind}-{name}", mlflow=mlflow)  # noqa: E731
    numbers = deaths(1, f"mlflow {databases.kind}")
    assert try_all(make, build, moment, numbers, with_worker=False) == {}
