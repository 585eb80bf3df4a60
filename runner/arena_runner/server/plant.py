"""`Plant`: the moving parts of a server (controllers, executors, supervised processes), started and stopped."""

from __future__ import annotations

import logging
import threading

from arena_runner.server import life
from arena_runner.server.controllers.deployments import DeploymentsController
from arena_runner.server.controllers.imports import ImportsController
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.mlflow_process import MlflowController
from arena_runner.server.tracking import Tracker
from arena_runner.server.world import World

FLUSH_S = 15.0
"""How long the tracker may take to end its current step; what MLflow lacks then is written at the next start."""

log = logging.getLogger(__name__)


class Plant:
    """Everything of a server that acts on its own."""

    def __init__(self, world: World, mlflow_uri: str | None) -> None:
        self._world = world
        self._runs = RunsController(world, LocalExecutor(world))
        self._deployments = DeploymentsController(world)
        self._imports = ImportsController(world)
        self._mlflow = MlflowController(world, mlflow_uri)
        self._tracker = Tracker(world)

    def start(self) -> None:
        """Begin to act."""
        for controller in (self._mlflow, self._runs, self._deployments, self._tracker, self._imports):
            controller.start()

    def drain(self) -> None:
        """Hand out nothing new and let the workers save; the API must still answer them."""
        log.info("stopping: workers may save")
        self._world.draining.set()
        life.withdraw(self._world.home)
        self._runs.stop()
        self._runs.drain()

    def close(self) -> None:
        """Write down what has happened, then stop what is left."""
        for controller in (self._deployments, self._tracker, self._mlflow, self._imports):
            controller.ask_to_stop()
        self._world.resolvers.close()
        self._deployments.stop()
        closing = threading.Thread(target=self._deployments.close, name="close model servers")
        closing.start()
        self._tracker.stop(FLUSH_S)
        if self._world.links.mlflow_ready.is_set() and not self._tracker.is_alive():
            self._tracker.look()  # once more: the last events came while the workers stopped
        self._mlflow.stop()
        self._mlflow.close()
        closing.join()
