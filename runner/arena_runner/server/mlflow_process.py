"""Keeps `mlflow server` running in the background, or follows one that runs elsewhere.

The API is ready long before MLflow is; runs never wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from arena_gitops.errors import UsageError
from arena_runner import logs
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.home import Home
from arena_runner.server.keys import Keys
from arena_runner.server.registry import credentials
from arena_runner.server.supervised import Program, Supervised
from arena_runner.server.world import World

QUIET = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its job runner needs processes nobody here uses
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


START_S, WATCH_S = 0.5, 5.0
"""How often to look while MLflow starts, and once it runs."""


def secret_path(keys: Keys) -> str:
    """The path below which our MLflow answers.

    It listens on a port that every user of this machine can reach, and knows no passwords.
    """
    return f"/{keys.derive('mlflow').hex()[:40]}"


def program(home: Home, secret: str) -> Program:
    """`mlflow server` on SQLite and a folder of the home, on loopback, with one worker.

    The secret goes by its environment, which other users cannot read, and not by its command line.
    """
    environment = {"ARENA_HOME": str(home.root), "MLFLOW_STATIC_PREFIX": secret, **QUIET}

    def command(port: int, _token: str) -> Sequence[str]:
        store = f"sqlite:///{home.mlflow / 'mlflow.db'}"
        where = ("--backend-store-uri", store, "--artifacts-destination", str(home.mlflow / "artifacts"))
        network = ("--host", "127.0.0.1", "--port", str(port), "--workers", "1")
        quiet = ("--uvicorn-opts", "--no-access-log")  # it would write the secret down, and is long
        return (sys.executable, "-m", "mlflow", "server", *where, "--serve-artifacts", *network, *quiet)

    return Program("mlflow", command, lambda _token: environment, f"{secret}/health")


class MlflowController(Controller):
    """Says in `Links` where MLflow is and whether it answers."""

    def __init__(self, world: World, uri: str | None) -> None:
        super().__init__(world)
        if uri is not None and urlsplit(uri).scheme not in {"http", "https"}:
            raise UsageError(f"--mlflow-uri {uri}: expected the http(s) address of an MLflow tracking server")
        self._uri = uri.rstrip("/") if uri else None
        self._secret = secret_path(world.keys)
        logs.hide(self._secret.lstrip("/"))  # clients' exceptions hold the address they called
        self._own = None if uri else Supervised(world.home, program(world.home, self._secret))

    def reconcile(self) -> None:
        """One look; a start or restart if need be."""
        links = self.world.links
        if self._own is not None:
            endpoint = self._own.look()
            links.starts["mlflow"] = self._own.starts
            links.mlflow = self._own.endpoint.url + self._secret if self._own.endpoint else None
            self._tell(endpoint is not None)
        elif self._uri is not None:
            links.mlflow = self._uri
            self._tell(_answers(self._uri))

    def close(self) -> None:
        """End our own MLflow."""
        self.world.links.mlflow_ready.clear()
        if self._own is not None:
            self._own.stop(grace_s=10.0)

    def _tell(self, ready: bool) -> None:
        known = self.world.links.mlflow_ready
        self.interval_s = WATCH_S if ready else START_S
        if ready and not known.is_set():
            known.set()
            self.world.bell.ring()
        elif not ready:
            known.clear()


def _answers(uri: str) -> bool:
    try:
        return httpx.get(f"{uri}/health", timeout=5.0, auth=credentials()).status_code == 200
    except httpx.TransportError:
        return False
