"""Answers kept for as long as nothing was written, built once however many ask.

One server has a database to itself, so that counting its own commits tells whether an answer is still true. What an
answer holds beside the database (models in a folder, the month) makes it old after a few seconds.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

OLD_S = 5.0
MOST = 64
"""Keys whose answers are kept: anybody may ask for made-up ones."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A document as it is sent."""

    etag: str
    body: bytes


@dataclass(slots=True)
class _Place:
    """Where one answer is kept; whoever holds the lock builds it, the others wait for that."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: tuple[Answer, int, float] | None = None
    """with the count of commits and the time before it was read"""


class Kept:
    """The answers of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def get(self, key: Hashable, commits: Callable[[], int], build: Callable[[], Answer]) -> Answer:
        """An answer that knows every commit made before the question; `commits` counts them.

        One that is merely old is still given to those who ask while somebody makes it anew.
        """
        place = self._place(key)
        if (answer := self._good(place, commits(), even_old=place.lock.locked())) is not None:
            return answer
        with place.lock:
            answer = self._good(place, commits())
            if answer is None:
                count, now = commits(), self._clock()  # a commit during the look makes it old
                answer = build()
                place.kept = (answer, count, now)
            return answer

    def _good(self, place: _Place, commits: int, *, even_old: bool = False) -> Answer | None:
        if place.kept is None:
            return None
        answer, known, made = place.kept
        return answer if known == commits and (even_old or self._clock() - made < OLD_S) else None

    def _place(self, key: Hashable) -> _Place:
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            if len(self._places) > MOST:
                self._places.popitem(last=False)
            return place
