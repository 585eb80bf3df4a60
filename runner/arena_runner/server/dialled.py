"""Serving hosts that can only dial out: what they are asked travels over connections that they have opened.

Each has an address of its own on this machine's loopback. Whoever connects there is joined with a request that the host
holds open: bytes go down in the answer to that, and up in the body of another. They are passed on unread; the door at
the other end (`serving.gateway`) asks for a model server's token, so that this address opens nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

HELD_S = 25.0
"""A host's request is held open for so long and then asked for anew: what is silent for longer is cut by proxies."""
JOINED_S = 5.0
"""Whoever connects is joined with the host by then, or let go."""
LOOK_S = 0.5
IDLE_S = 5.0
"""A connection over which nothing came for so long waits for nobody, and does not keep a server from stopping."""
CHUNK = 1 << 16


@dataclass(slots=True)
class Call:
    """One connection to a host's address."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    taken: bool = False
    used: float = field(default_factory=time.monotonic)
    """when something came over it last"""

    @property
    def idle(self) -> bool:
        """Whether nothing came for long."""
        return time.monotonic() - self.used > IDLE_S

    def drop(self) -> None:
        """Let it go if no host has taken it."""
        if not self.taken:
            self.taken = True
            self.writer.close()


@dataclass(slots=True)
class _Address:
    """Of one host."""

    url: str
    server: asyncio.Server
    waiting: asyncio.Queue[Call]
    taken: dict[str, Call] = field(default_factory=dict)


class Dialled:
    """All such hosts of one server; everything but `url` is called in its event loop."""

    def __init__(self) -> None:
        self._addresses: dict[str, _Address] = {}

    def url(self, host_id: str) -> str | None:
        """Where a host is asked; None before it has opened a connection."""
        address = self._addresses.get(host_id)
        return address.url if address else None

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Take the addresses of hosts away that are gone."""
        for host_id in [one for one in self._addresses if gone(one)]:
            self._addresses.pop(host_id).server.close()

    async def next(self, host_id: str, over: Callable[[], bool]) -> Call | None:
        """The next connection for a host; None if there is none for a while, or it is `over`."""
        address = self._addresses.get(host_id) or await self._opened(host_id)
        for _ in range(int(HELD_S / LOOK_S)):
            with contextlib.suppress(TimeoutError):
                call = await asyncio.wait_for(address.waiting.get(), LOOK_S)
                if not call.taken:
                    call.taken = True
                    address.taken[call.key] = call
                    return call
            if over():
                return None
        return None

    async def down(self, host_id: str, call: Call, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        """What was asked, as it comes; ends with the connection."""
        try:
            while True:
                try:
                    data = await asyncio.wait_for(call.reader.read(CHUNK), LOOK_S)
                except TimeoutError:
                    if over() and call.idle:
                        return
                    continue
                except OSError:
                    return
                if not data:
                    return
                call.used = time.monotonic()
                yield data
        finally:
            call.writer.close()
            if (address := self._addresses.get(host_id)) is not None:
                address.taken.pop(call.key, None)

    async def up(self, host_id: str, key: str, body: AsyncIterator[bytes]) -> bool:
        """Pass on what is answered; whether there is such a connection."""
        address = self._addresses.get(host_id)
        call = address.taken.get(key) if address else None
        if call is None:
            return False
        try:
            async for data in body:
                call.used = time.monotonic()
                call.writer.write(data)
                await call.writer.drain()
        except OSError:
            return True  # who asked has hung up
        finally:
            call.writer.close()
        return True

    async def _opened(self, host_id: str) -> _Address:
        waiting: asyncio.Queue[Call] = asyncio.Queue()

        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            call = Call(reader, writer)
            asyncio.get_running_loop().call_later(JOINED_S, call.drop)
            waiting.put_nowait(call)

        # With its protocol said, asyncio sends small pieces at once.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(joined, sock=listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self._addresses.setdefault(host_id, _Address(url, server, waiting))
