"""Workers as subprocesses of this machine: one process for one segment of one run."""

from __future__ import annotations

import sys
from pathlib import Path

from arena_runner.server import hub, processes
from arena_runner.server.auth import Role, issue, revoke_run
from arena_runner.server.processes import Identity
from arena_runner.server.services import run_log
from arena_runner.server.world import World

RUNNER = (sys.executable, "-m", "arena_runner.cli")
"""This installation's `arena-runner`, wherever its script is."""


class LocalExecutor:
    """Starts `arena-runner work` with a token that opens one run."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, run_id: str, notes: tuple[str, ...] = ()) -> Identity:
        """A worker for this run; `notes` are written to its log first."""
        world, log = self._world, self.log(run_id)
        token = issue(world, Role.WORKER, f"worker of {run_id}", run_id=run_id)
        program = world.settings.worker.command or (*RUNNER, "work")
        folder = world.home.run(run_id) / "work"
        command = [*program, "--server", world.links.server, "--run", run_id, "--workdir", str(folder)]
        environment = processes.clean_environment(
            {
                "ARENA_WORKER_TOKEN": token,
                "ARENA_HOME": str(world.home.root),
                "ARENA_MODELS_DIR": str(world.home.models),
                "PYTHONUNBUFFERED": "1",
                **hub.environment(world.settings),
            }
        )
        run_log.note(world, run_id, (f"starting a worker for run {run_id}", *notes))
        return processes.start(command, environment=environment, folder=folder, log=log)

    def log(self, run_id: str) -> Path:
        """Where the run's workers print."""
        return run_log.path(self._world, run_id)

    def last_words(self, run_id: str) -> str:
        """What the run's last worker printed at the end; empty if it came to nothing."""
        line = processes.tail(self.log(run_id), lines=1)
        return "" if run_log.NOTE in line else line

    def forget(self, run_id: str) -> None:
        """The run's worker is gone: its token opens nothing any more."""
        revoke_run(self._world, run_id)
