"""Whose turn it is: each deployment answers so many requests at a time, and so many more may wait in order.

A request is one HTTP request, however many prompts it has. What finds the queue full is told when to come back.
Used inside one event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served
from arena_runner.server.traffic import Name, Traffic

LONGEST_S = 30.0
"""A request waits no longer for its turn; the adapter it was meant for stays loaded for longer than that."""
AFTER_S = (1, 60)
"""bounds of what a refused caller is told to wait"""


@dataclass(slots=True)
class _Line:
    """Of one deployment."""

    active: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    typical_s: float = 1.0
    """how long a request takes, newest ones counting most"""


class Turns:
    """All deployments of one server."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._lines: dict[Name, _Line] = {}

    @asynccontextmanager
    async def turn(self, served: Served) -> AsyncIterator[None]:
        """Wait for one; 429 when too many wait already or it does not come in time."""
        name, line = served.name, self._lines.setdefault(served.name, _Line())
        asked = time.perf_counter()
        await self._wait(served, line)
        began = time.perf_counter()
        self._traffic.waited(name, began - asked)
        try:
            yield
        finally:
            line.typical_s += 0.2 * (time.perf_counter() - began - line.typical_s)
            self._leave(name, line, served.capacity[0])

    async def _wait(self, served: Served, line: _Line) -> None:
        most, queue = served.capacity
        if line.active < most and not line.waiting:
            line.active += 1
            self._tell(served.name, line)
            return
        if len(line.waiting) >= queue:
            raise self._full(served, line)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(mine)
        self._tell(served.name, line)
        try:
            await asyncio.wait_for(asyncio.shield(mine), LONGEST_S)
        except BaseException as problem:
            self._give_up(served, line, mine)
            if isinstance(problem, TimeoutError):
                raise self._full(served, line) from problem
            raise

    def _give_up(self, served: Served, line: _Line, mine: asyncio.Future[None]) -> None:
        """Leave the queue; a turn that came at the same moment goes to the next."""
        if mine.done():
            self._leave(served.name, line, served.capacity[0])
        else:
            mine.cancel()
            line.waiting.remove(mine)
            self._tell(served.name, line)

    def _leave(self, name: Name, line: _Line, most: int) -> None:
        line.active -= 1
        while line.waiting and line.active < most:
            line.waiting.popleft().set_result(None)
            line.active += 1
        self._tell(name, line)

    def _full(self, served: Served, line: _Line) -> RefusedError:
        self._traffic.refused(served.name)
        most, _ = served.capacity
        after = math.ceil(line.typical_s * (len(line.waiting) + 1) / most)
        text = f"deployment {served.deployment} answers {most} requests at a time and {len(line.waiting)} wait already"
        return RefusedError(
            429, "too-many-requests", text, retry_after_s=min(max(after, AFTER_S[0]), AFTER_S[1])
        )

    def _tell(self, name: Name, line: _Line) -> None:
        self._traffic.queued(name, active=line.active, waiting=len(line.waiting))
