"""A real server in a process of its own, with scripted workers; every test has its own home."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from postgres import on_both
from sqlalchemy import text

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import Owner, PutResource, Tier
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.home import Home
from arena_runner.server.settings import Settings, TierFile
from arena_runner.server.store.database import Store
from arena_runner.server.world import World

HERE = Path(__file__).parent
NO_MLFLOW = "http://127.0.0.1:9"  # the discard port: nobody answers
PATIENCE_S = 60.0
"""For what happens in a second or two where nothing else is going on: how quick it is, is asked elsewhere."""


def until(condition, timeout_s=PATIENCE_S, pause_s=0.05):
    """The first true answer of `condition`; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause_s)


def experiment(name="exp", *, steps=16, seed=1, base=None, **script):
    """The body of an experiment's PUT."""
    manifest = {"algorithm": {"name": "GRPO", "seed": seed}, "training": {"max_steps": steps}}
    manifest |= {"mutation": {"rand_seed": seed}, "script": script}
    inputs = {"base": base} if base else {}
    spec = {"project": "arith", "manifest": manifest, "inputs": inputs, "model": {"id": "tiny"}}
    data = {**manifest, "training": {}, "base": base}
    return PutResource(owner=Owner(stack="team"), spec=spec, fingerprint=fingerprint(data, {"name": name}))


def deployment(of="exp", *, checkpoint="best", **more):
    """The body of a deployment's PUT."""
    spec = {"experiment": of, "checkpoint": checkpoint, **more}
    return PutResource(owner=Owner(stack="team"), spec=spec, fingerprint=fingerprint(spec, {}))


@dataclass
class Server:
    """One server process and a client with its admin token."""

    home: Path
    mlflow: str | None = NO_MLFLOW
    settings: dict = field(default_factory=dict)
    tiers: int | None = None
    """slots of its one tier; None: the default tiers"""
    database: str | None = None
    """address; None: its own default, or what the test says otherwise"""
    entry: tuple = ("-m", "arena_runner.cli")
    """what Python runs; a test may have its own that fails where it is told to"""
    variables: dict = field(default_factory=dict)
    """of its environment"""
    at_first: dict = field(default_factory=dict)
    """what it lacked when it had just said that it is ready"""
    process: subprocess.Popen | None = None
    http: httpx.Client | None = None

    def start(self):
        self.launch()
        self.connect()
        self.at_first = self.http.get("/readyz").json()
        return self

    def launch(self):
        """Start the process and do not wait until it is ready."""
        self.home.mkdir(exist_ok=True)
        worker = {"command": [sys.executable, str(HERE / "scripted_worker.py")]}
        model_server = {"command": [sys.executable, str(HERE / "scripted_model_server.py")]}
        settings = {"worker": worker, "model_server": model_server, **self.settings}
        (self.home / "settings.yaml").write_text(json.dumps(settings))
        if self.tiers is not None:
            tier = {"id": "local", "num_cpus": 2, "ram_gb": 4.0, "credits_per_node_hour": 1.0}
            (self.home / "tiers.yaml").write_text(json.dumps({"tiers": [{**tier, "slots": self.tiers}]}))
        command = [sys.executable, *self.entry, "server", "--home", str(self.home)]
        command += ["--mlflow-uri", self.mlflow] if self.mlflow else []
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment())

    def environment(self):
        address = {"ARENA_DATABASE_URL": self.database} if self.database else {}
        return os.environ | address | self.variables

    def rows(self, statement, **values):
        """What its database answers."""
        engine = Store(self.database or f"sqlite:///{self.home / 'arena.db'}").engine
        with engine.connect() as connection:
            found = connection.execute(text(statement), values).all()
        engine.dispose()
        return found

    def connect(self):
        until(lambda: self.announcement().get("pid") == self.process.pid or self.process.poll() is not None)
        assert self.process.poll() is None, (self.home / "server.log").read_text()
        note = self.announcement()
        headers = {"Authorization": f"Bearer {note['token']}"}
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{note['port']}", headers=headers, timeout=PATIENCE_S
        )

    def has_mlflow(self):
        """Whether its MLflow answers."""
        parts = self.http.get("/readyz").json()["parts"]
        return next(part["ok"] for part in parts if part["name"] == "mlflow")

    def announcement(self):
        path = self.home / "server.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def stop(self, number=signal.SIGTERM):
        if self.http is not None:
            self.http.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)

    def processes(self):
        """Pids of whatever runs for this home beside the server."""
        return list(_own_processes(self.home))

    def put(self, kind, name, body, *, etag=None, key=None):
        headers = {k: v for k, v in {"If-Match": etag, "Idempotency-Key": key}.items() if v}
        path = f"/api/v1/resources/{kind}/{name}"
        return self.http.put(path, json=body.model_dump(mode="json"), headers=headers)

    def apply(self, name, body, kind="experiment", **more):
        answer = self.put(kind, name, body, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def retire(self, address, etag=None):
        params = {"stack": "team", "namespace": "main"}
        headers = {"If-Match": etag} if etag else {}
        return self.http.delete(f"/api/v1/resources/{address}", params=params, headers=headers)

    def state(self, stack="team"):
        return self.http.get("/api/v1/state", params={"stack": stack}).json()

    def resource(self, address, stack="team"):
        return next(r for r in self.state(stack)["resources"] if f"{r['kind']}/{r['name']}" == address)

    def run(self, run_id):
        return self.http.get(f"/api/v1/runs/{run_id}").json()

    def wait_run(self, run_id, *states, timeout_s=PATIENCE_S):
        wanted = states or ("completed", "failed", "stopped")
        return until(lambda: (r := self.run(run_id))["state"] in wanted and r, timeout_s)

    def events(self, run_id, after=0):
        text = self.http.get(f"/api/v1/runs/{run_id}/events", params={"after": after}).text
        return [json.loads(line) for line in text.splitlines()]

    def blob(self, data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        assert self.http.put(f"/api/v1/blobs/{digest}", content=data).status_code in {200, 201}
        return digest


def _own_processes(home):
    """Pids whose environment names this home: whatever a test left running."""
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit() and int(proc.name) != os.getpid():
            try:
                if f"ARENA_HOME={home}".encode() in (proc / "environ").read_bytes():
                    yield int(proc.name)
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue


def end(server):
    """Stop a server; nothing that it started may outlive it."""
    server.stop()
    left = list(_own_processes(server.home))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"{server.home}: processes outlived their server: {left}"


class Clock:
    """A clock that moves when told to."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


def pytest_generate_tests(metafunc):
    on_both(metafunc)


@pytest.fixture(autouse=True)
def _models_of_its_own(monkeypatch):
    """`make test` names a folder of real models; a server of these tests has its own, in its home."""
    monkeypatch.delenv("ARENA_MODELS_DIR", raising=False)


@pytest.fixture
def world(tmp_path, databases):
    """The insides of a server without its threads: a migrated database, blobs, a clock to be moved.

    Its tier has no slot: whatever works here is a worker that pulls.
    """
    home = Home(tmp_path / "home")
    home.prepare()
    tier = Tier(id="local", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, slots=0)
    with databases.world(home.root) as url:
        store = Store.open(url)
        yield World(home, store, BlobStore(home.blobs), Settings(), TierFile(tiers=(tier,)), clock=Clock())
        store.close()


@contextmanager
def serving(databases, home, **options):
    """A server that is not started yet, on a database of its own; both end with the block."""
    with databases.world(home) as url:
        server = Server(home, database=url, **options)
        try:
            yield server
        finally:
            end(server)


@pytest.fixture
def make_server(tmp_path, databases):
    """Servers of this test alone."""
    with ExitStack() as made:
        yield lambda name="home", **options: made.enter_context(
            serving(databases, tmp_path / name, **options)
        )


@pytest.fixture
def server(make_server):
    """A server of this test alone, which may be killed."""
    return make_server().start()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory, databases):
    """A server of the whole module, with room for eight workers; each test uses names of its own."""
    with serving(databases, tmp_path_factory.mktemp("shared") / "home", tiers=8) as server:
        yield server.start()


@pytest.fixture(scope="session")
def tracking_server(tmp_path_factory, databases):
    """A server with an MLflow of its own, for all who need one; each test uses names of its own."""
    with serving(databases, tmp_path_factory.mktemp("tracked") / "home", mlflow=None) as server:
        server.start()
        until(server.has_mlflow, 100)  # it takes as long to begin as everything else here together
        yield server


@pytest.fixture(scope="session")
def build():
    """The bodies and the waiting of this folder, for tests that cannot import a conftest."""
    import types

    return types.SimpleNamespace(experiment=experiment, deployment=deployment, until=until, Server=Server)
