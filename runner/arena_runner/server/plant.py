"""`Plant`: the moving parts of a server (controllers, executors, supervised processes), started and stopped."""

from __future__ import annotations

import logging

from arena_runner.server import life
from arena_runner.server.controllers.deployments import DeploymentsController
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.mlflow_process import MlflowController
from arena_runner.server.tracking import Tracker
from arena_runner.server.world import World

log = logging.getLogger(__name__)


class Plant:
    """Everything of a server that acts on its own."""

    def __init__(self, world: World, mlflow_uri: str | None) -> None:
        self._world = world
        self._runs = RunsController(world, LocalExecutor(world))
        self._deployments = DeploymentsController(world)
        self._mlflow = MlflowController(world, mlflow_uri)
        self._tracker = Tracker(world)

    def start(self) -> None:
        """Begin to act."""
        for controller in (self._mlflow, self._runs, self._deployments, self._tracker):
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
        self._deployments.stop()
        self._deployments.close()
        self._tracker.stop()
        if self._world.links.mlflow_ready.is_set():
            self._tracker.look()  # once more: the last events came while the workers stopped
        self._mlflow.stop()
        self._mlflow.close()
