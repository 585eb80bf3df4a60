"""How a worker goes when it is told to: at the end of the iteration, with its job handed back.

SIGTERM and SIGINT say so once; a second one, or an iteration that outlasts the grace, ends the process at once. The
job is handed back in any case, so that another worker need not wait for the lease to run out.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from arena_runner.journal import Journal
from arena_runner.ports import Stop

TERMINATED = 128 + signal.SIGTERM

log = logging.getLogger("arena_runner.worker")


class Leaving:
    """Whether this process was told to go; use as `with leaving.on_signals()` around everything it does."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.asked = threading.Event()
        self._held: tuple[Journal, Callable[[str], object]] | None = None
        self._timer: threading.Timer | None = None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and SIGINT."""
        before = {number: signal.signal(number, self._told) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            self._disarm()
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def holding(self, journal: Journal, give_up: Callable[[str], object]) -> Iterator[None]:
        """While this runs a job is held: `give_up` hands it back."""
        self._held = (journal, give_up)
        try:
            if self.asked.is_set():  # it came between the claim and here
                journal.ask_to_stop(Stop.INTERRUPTED)
            yield
        finally:
            self._held = None
            self._disarm()

    def _told(self, _number: int, _frame: FrameType | None) -> None:
        again = self.asked.is_set()
        self.asked.set()
        if self._held is None:
            return
        self._held[0].ask_to_stop(Stop.INTERRUPTED)
        if self._timer is None or again:
            self._disarm()
            self._timer = threading.Timer(0.0 if again else self.grace_s, self._go)
            self._timer.daemon = True
            self._timer.start()

    def _go(self) -> None:
        """The iteration takes too long: it is done again elsewhere."""
        if (held := self._held) is not None:
            held[1]("its worker had to go in the middle of an iteration")
        os._exit(TERMINATED)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
