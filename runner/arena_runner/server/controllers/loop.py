"""The thread of a controller: look at the world when the bell rings, and every few seconds anyway."""

from __future__ import annotations

import logging
import threading

from arena_runner.server.faults import fault_of
from arena_runner.server.world import World

log = logging.getLogger(__name__)


class Controller(threading.Thread):
    """Calls `reconcile` until stopped. A step that fails is logged and tried again: nothing is remembered."""

    interval_s = 1.0

    def __init__(self, world: World) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.world = world
        self._wake = world.bell.hear()
        self._stopping = False

    def reconcile(self) -> None:
        """Look, compare, take the next step of whatever needs one."""
        raise NotImplementedError

    def run(self) -> None:
        """The loop."""
        while not self._stopping:
            self._wake.clear()
            self.look()
            self._wake.wait(self.interval_s)

    def look(self) -> None:
        """One reconciliation; a failure is logged, and the next look starts afresh."""
        try:
            self.reconcile()
        except Exception as problem:
            fault = fault_of(problem)
            if fault is None:
                log.exception("%s failed; it looks again in %g s", self.name, self.interval_s)
            else:  # known, and the same at every look until somebody does something about it
                log.warning("%s waits: %s", self.name, fault.message)

    @property
    def stopping(self) -> bool:
        """Whether a long step should end early."""
        return self._stopping

    def ask_to_stop(self) -> None:
        """Let the current step end, then no more."""
        self._stopping = True
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ask and wait; a step that hangs on another process is left behind with its daemon thread."""
        self.ask_to_stop()
        if self.is_alive():
            self.join(timeout_s)
