"""Keeps `mlflow server` running in the background, or follows one that runs elsewhere.

The API is ready long before MLflow is; runs never wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from arena_gitops.errors import UsageError
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.home import Home
from arena_runner.server.supervised import Program, Supervised
from arena_runner.server.world import World

QUIET = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its job runner needs processes nobody here uses
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


START_S, WATCH_S = 0.5, 5.0
"""How often to look while MLflow starts, and once it runs."""


def program(home: Home) -> Program:
    """`mlflow server` on SQLite and a folder of the home, on loopback, with one worker."""

    def command(port: int, _token: str) -> Sequence[str]:
        store = f"sqlite:///{home.mlflow / 'mlflow.db'}"
        where = ("--backend-store-uri", store, "--artifacts-destination", str(home.mlflow / "artifacts"))
        network = ("--host", "127.0.0.1", "--port", str(port), "--workers", "1")
        return (sys.executable, "-m", "mlflow", "server", *where, "--serve-artifacts", *network)

    return Program("mlflow", command, lambda _token: {"ARENA_HOME": str(home.root), **QUIET}, "/health")


class MlflowController(Controller):
    """Says in `Links` where MLflow is and whether it answers."""

    def __init__(self, world: World, uri: str | None) -> None:
        super().__init__(world)
        if uri is not None and urlsplit(uri).scheme not in {"http", "https"}:
            raise UsageError(f"--mlflow-uri {uri}: expected the http(s) address of an MLflow tracking server")
        self._uri = uri.rstrip("/") if uri else None
        self._own = None if uri else Supervised(world.home, program(world.home))

    def reconcile(self) -> None:
        """One look; a start or restart if need be."""
        links = self.world.links
        if self._own is not None:
            endpoint = self._own.look()
            links.starts["mlflow"] = self._own.starts
            links.mlflow = self._own.endpoint.url if self._own.endpoint else None
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
        return httpx.get(f"{uri}/health", timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False
