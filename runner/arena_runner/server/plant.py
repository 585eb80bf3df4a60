"""`Plant`: the moving parts of a server (controllers, executors, supervised processes), started and stopped."""

from __future__ import annotations

import logging

from arena_runner.server import life
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.world import World

log = logging.getLogger(__name__)


class Plant:
    """Everything of a server that acts on its own."""

    def __init__(self, world: World, mlflow_uri: str | None) -> None:
        self._world = world
        self._runs = RunsController(world, LocalExecutor(world))

    def start(self) -> None:
        """Begin to act."""
        self._runs.start()

    def drain(self) -> None:
        """Hand out nothing new and let the workers save; the API must still answer them."""
        log.info("stopping: workers may save")
        self._world.draining.set()
        life.withdraw(self._world.home)
        self._runs.stop()
        self._runs.drain()

    def close(self) -> None:
        """Stop what is left."""
