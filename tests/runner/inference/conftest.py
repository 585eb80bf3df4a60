"""A control plane in this process over a real database, with a real model server behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types

import httpx
import pytest
import uvicorn

MODEL_TOKEN = "model-server-token"


def write_adapter(model, folder, seed):
    import torch

    from arena_runner.adapters import Population
    from arena_runner.models import load_base

    base = load_base(str(model), dtype=torch.float32)
    population = Population.attach(base, targets=["q_proj", "v_proj"], ranks=[4], alphas=[8.0], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    tensors = population.export(0)
    population.load(0, {name: torch.randn(t.shape, generator=generator) * 0.4 for name, t in tensors.items()})
    population.save(0, folder)


@pytest.fixture(scope="session")
def models(tiny_model_dir, tmp_path_factory):
    """A model server with two adapters, `maths@1` (with a template) and `maths@2`."""
    root = tmp_path_factory.mktemp("models")
    ready = root / "ready.json"
    command = [sys.executable, "-m", "arena_runner.cli", "serve", "--model", str(tiny_model_dir)]
    command += ["--dtype", "float32", "--ready-file", str(ready)]
    environment = {**os.environ, "ARENA_MODEL_SERVER_TOKEN": MODEL_TOKEN, "OMP_NUM_THREADS": "1"}
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    write_adapter(tiny_model_dir, root / "one", 1)
    write_adapter(tiny_model_dir, root / "two", 2)
    deadline = time.monotonic() + 90
    while not ready.exists():
        assert process.poll() is None, (root / "log").read_text()
        assert time.monotonic() < deadline, (root / "log").read_text()
        time.sleep(0.05)
    url = json.loads(ready.read_text())["url"]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {MODEL_TOKEN}"}, timeout=30) as http:
        template = {"system_0": "Add.", "user_1": "Sum of {question}?"}
        for name, folder, more in (("maths@1", "one", {"template": template}), ("maths@2", "two", {})):
            answer = http.post("/adapters", json={"name": name, "path": str(root / folder), **more})
            assert answer.status_code == 201, answer.text
        yield types.SimpleNamespace(url=url, http=http)
    process.terminate()
    process.wait(20)


def filled(table, **known):
    """A row with what the test means; every other column that must not be empty holds nothing of its type."""
    needed = [c for c in table.__table__.columns if not c.nullable and c.name not in known and c.name != "id"]
    empty = {int: 0, float: 0.0, str: "", bool: False}  # anything else is JSON
    return table(**{column.name: empty.get(column.type.python_type, {}) for column in needed}, **known)


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
        self.world.links.model_servers["tiny"] = ModelServer(models.url, MODEL_TOKEN)
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

    def deploy(self, name, adapter, *, number=1, state="serving", model="tiny"):
        """Write down what the deployments controller would: revision `number` serves `adapter`."""
        from arena_runner.server.store.tables import DeploymentStateRow, RevisionRow, RunRow

        run = {"id": "run-1", "namespace": "main", "experiment": "maths"}
        rollout = {
            "namespace": "main",
            "deployment": name,
            "number": number,
            "run_id": "run-1",
            "created": 1.0,
        }
        serving = number if state == "serving" else 0
        with self.world.store.write() as session:
            session.merge(filled(RunRow, **run, spec={"manifest": {"algorithm": {"name": "GRPO"}}}))
            observed = {"namespace": "main", "name": name, "state": state, "revision": serving}
            session.merge(filled(DeploymentStateRow, **observed, message="told so by a test"))
            what = {"step": 96, "member": 1, "model": {"id": model, "revision": None}, "adapter": adapter}
            session.add(filled(RevisionRow, **rollout, **what, state=state))

    def http(self, role="inference"):
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture
def plane(tmp_path, models):
    """A control plane on which nothing is deployed."""
    made = Plane(tmp_path / "home", models)
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
