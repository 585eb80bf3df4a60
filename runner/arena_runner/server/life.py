"""One server per home: the lock, the announcement, the port and token that survive a stop.

`server.json` exists only while a server is ready. It is removed when the server begins to stop; port and token
move to `server.last.json`, so that the next life has the same address and logins.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from arena_gitops.errors import LockedError
from arena_runner.server.home import Home
from arena_runner.server.processes import Identity

TURN_S = 0.0005
"""How long a thread may compute while another one waits. With Python's own 5 ms, a request that goes to the store ten
times beside a busy thread waits ten times as long."""
LOCK_WAIT_S = 60.0
"""A predecessor that is stopping has ended by then, whatever hangs."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """`server.json`."""

    pid: int
    started: float
    port: int
    token: str
    version: str

    def write(self, path: Path) -> None:
        """Appear whole, readable by the owner only."""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".server-")  # mkstemp makes it 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)

    @classmethod
    def read(cls, path: Path) -> Announcement | None:
        """What the file says; None when there is none or it is damaged."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # not ours, or of another format: as good as none
            return None

    def alive(self) -> bool:
        """Whether the process that wrote it still runs."""
        return Identity(self.pid, self.started).alive()


def remembered(home: Home) -> Announcement | None:
    """Port and token of the last life: left behind by a kill, or put aside by an orderly stop."""
    return Announcement.read(home.announcement) or Announcement.read(home.memory)


def announce(home: Home, *, port: int, token: str, version: str) -> None:
    """Tell the CLI that the server is ready."""
    pid = os.getpid()
    started = psutil.Process(pid).create_time()
    Announcement(pid, started, port, token, version).write(home.announcement)


def withdraw(home: Home) -> None:
    """From now on this server is stopping; its address and token are kept for the next."""
    if home.announcement.exists():
        home.announcement.replace(home.memory)


@contextmanager
def only_server(home: Home) -> Iterator[None]:
    """Hold the home's lock; waits for a predecessor that is stopping, refuses beside one that is ready."""
    with home.lock.open("a+", encoding="utf-8") as file:
        _lock(home, file)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield  # closing the file gives the lock back


def _lock(home: Home, file: IO[str]) -> None:
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ready = Announcement.read(home.announcement)
            if ready is not None and ready.alive():
                message = f"a server for {home.root} runs already: pid {ready.pid}, port {ready.port}"
                raise LockedError(message) from None
            if time.monotonic() > deadline:
                message = f"another server holds {home.lock} and does not become ready; see {home.logs}"
                raise LockedError(message) from None
            time.sleep(0.1)
        else:
            return


def listen(host: str, port: int, previous: int | None) -> socket.socket:
    """A bound socket: the port asked for, else the previous one if it is free, else any."""
    for candidate in [port] if port else [previous or 0, 0]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With its protocol said, asyncio sends small answers at once instead of waiting for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
        except OSError as problem:
            listener.close()
            if candidate == port:
                raise LockedError(f"port {port} on {host} cannot be used: {problem.strerror}") from problem
        else:
            return listener
    raise LockedError(f"no free port on {host}")
