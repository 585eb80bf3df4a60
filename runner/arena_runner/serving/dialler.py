"""A serving host that the server cannot reach opens the connections over which it is asked (`server.dialled`).

Some requests to the server are always held open. One that is answered is joined with a connection to this host's own
door (`gateway`), and another is opened in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import httpx

SPARE = 4
"""requests held open while nobody asks"""
AGAIN_S = 1.0
CHUNK = 1 << 16
TIMEOUT = httpx.Timeout(None, connect=5.0)

log = logging.getLogger("arena_runner.host")


class Dialler:
    """Of one host; runs in a thread of its own until closed."""

    def __init__(self, server: str, token: str, host_id: str, door: tuple[str, int]) -> None:
        self._server, self._door = server, door
        self._path = f"/api/v1/workers/hosts/{host_id}/line"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="dialler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        task = self._loop.create_task(self._keep())
        self._loop.run_forever()
        for one in asyncio.all_tasks(self._loop):
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(task)
        self._loop.close()

    async def _keep(self) -> None:
        """As many requests as are spare, always."""
        spare, at_work = asyncio.Semaphore(SPARE), set[asyncio.Task[None]]()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self._server, headers=self._headers, timeout=TIMEOUT, limits=limits
        ) as http:
            while True:
                await spare.acquire()
                task = asyncio.create_task(self._held(http, spare))
                at_work.add(task)
                task.add_done_callback(at_work.discard)

    async def _held(self, http: httpx.AsyncClient, spare: asyncio.Semaphore) -> None:
        """One request, and what comes of it."""
        joined = False
        try:
            async with http.stream("GET", self._path) as answer:
                if answer.status_code == 200:
                    joined = True
                    spare.release()  # another one is held open meanwhile
                    await self._pass_on(http, answer)
                elif answer.status_code != 204:
                    await asyncio.sleep(AGAIN_S)  # a server that stops, or does not know this host yet
        except (httpx.TransportError, OSError) as problem:
            log.info("a connection to the server ended (%s)", type(problem).__name__)
            await asyncio.sleep(AGAIN_S)
        finally:
            if not joined:
                spare.release()

    async def _pass_on(self, http: httpx.AsyncClient, answer: httpx.Response) -> None:
        reader, writer = await asyncio.open_connection(*self._door)
        path = f"{self._path}/{answer.headers['x-line']}"
        up = asyncio.create_task(_quietly(http.post(path, content=_all_of(reader))))
        try:
            async for data in answer.aiter_raw():
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            await up


async def _all_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(CHUNK):
        yield data


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    """The other half of the connection tells what there is to tell."""
    with contextlib.suppress(httpx.TransportError, OSError):
        await work
