"""Hold the lease of a stack while an apply works: take it or wait for it, keep it alive, give it back.

A killed apply leaves a note beside its journal. The next apply of the same checkout sees from the note's file
lock, which the system drops with the process, that its holder is dead, and gives that lease back at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

from arena_gitops.apply.events import Listener, Told
from arena_gitops.apply.wait import Clock
from arena_gitops.errors import InterruptedByUserError, LeaseLostError, LockedError, PlatformError
from arena_gitops.platforms.base import Platform
from arena_gitops.spec.lease import HEARTBEAT_S, TTL_S, Lease, LeaseRequest
from arena_gitops.spec.wire import Owner

ASK_EVERY_S = 1.0
RELEASE_WITHIN_S = 1.0
"""An interrupted command waits no longer for the lease's end: it ends by itself."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to change a stack, and how long they wait for their turn."""

    holder: str = "somebody"
    operation: str = "apply"
    run_url: str | None = None
    patience_s: float = 0.0
    ttl_s: float = TTL_S
    heartbeat_s: float = HEARTBEAT_S


@dataclass(slots=True)
class Grip:
    """A lease, as far as it has been taken and not given back."""

    platform: Platform
    owner: Owner
    claim: Claim
    listener: Listener
    note: Path | None = None
    _lease: Lease | None = None
    _lost: Event = field(default_factory=Event)
    _ended: Event = field(default_factory=Event)

    @property
    def fence(self) -> int | None:
        """What a write under this lease carries; None on a platform without leases."""
        return self._lease.fence if self._lease else None

    @property
    def lost(self) -> bool:
        """Whether somebody released or took it while we worked."""
        return self._lost.is_set()

    def lose(self) -> None:
        """The platform has told us so."""
        self._lost.set()

    @contextmanager
    def held(self, clock: Clock, stopping: Callable[[], bool]) -> Iterator[Grip]:
        """Within, the stack is ours.

        Raises:
            LockedError: Somebody else held it for longer than we were ready to wait.
            InterruptedByUserError: Asked to stop while waiting.
        """
        with _noted(self.note) as note:
            self._give_back_that_of_the_dead(note)
            self._lease = self._taken(clock, stopping)
            if self._lease is not None:
                _write(note, self._lease.id)
                Thread(target=self._keep_alive, daemon=True).start()
            try:
                yield self
            finally:
                self.release()
                _write(note, "")

    def release(self) -> None:
        """Give it back, soon or not at all; giving it back twice is the same as once."""
        lease, self._lease = self._lease, None
        self._ended.set()
        if lease is None or self.lost:
            return
        release = Thread(target=self._released, args=(lease,), daemon=True)
        release.start()
        release.join(RELEASE_WITHIN_S)

    def _released(self, lease: Lease) -> None:
        try:
            self.platform.release_lease(lease.id)
        except PlatformError as error:
            self.listener(
                Told(f"the lease could not be released ({error}); it ends in {lease.ttl_s:g} s by itself")
            )

    def _taken(self, clock: Clock, stopping: Callable[[], bool]) -> Lease | None:
        claim = self.claim
        request = LeaseRequest(
            owner=self.owner,
            holder=claim.holder,
            operation=claim.operation,
            run_url=claim.run_url,
            ttl_s=claim.ttl_s,
        )
        deadline = clock.monotonic() + claim.patience_s
        told = False
        while True:
            try:
                return self.platform.take_lease(request)
            except LockedError as error:
                if clock.monotonic() >= deadline:
                    raise LockedError(f"{error}; {_advice(error)}", error.lease) from error
                if not told:
                    self.listener(Told(f"{error}; waiting up to {claim.patience_s:g} s"))
                    told = True
            if stopping():
                raise InterruptedByUserError("stopped while waiting for the lease; nothing was changed")
            clock.sleep(ASK_EVERY_S)

    def _keep_alive(self) -> None:
        """Until it is given back or lost. A platform that does not answer may have a better minute."""
        while not self._ended.wait(self.claim.heartbeat_s):
            lease = self._lease
            if lease is None:
                return
            try:
                self.platform.renew_lease(lease)
            except LeaseLostError:
                self._lost.set()
                return
            except PlatformError as error:
                self.listener(Told(f"heartbeat: {error}"))

    def _give_back_that_of_the_dead(self, note: TextIO | None) -> None:
        left = note.read().strip() if note is not None else ""
        if not left:
            return
        living = self.platform.living_lease(self.owner)
        if living is not None and living.id == left:
            self.platform.release_lease(left)
            self.listener(Told("gave back the lease of an earlier apply here that was killed"))


def _advice(error: LockedError) -> str:
    held = error.lease.get("id")
    return f"if its holder is gone: arena unlock {held}" if held else "try again later"


@contextmanager
def _noted(path: Path | None) -> Iterator[TextIO | None]:
    """The note, locked by this process; None where there is none, or a living apply of this checkout has it."""
    if path is None or sys.platform == "win32":
        yield None
        return
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        file.seek(0)
        yield file  # closing the file gives the lock back


def _write(note: TextIO | None, text: str) -> None:
    if note is not None:
        note.seek(0)
        note.truncate()
        note.write(text)
        note.flush()
