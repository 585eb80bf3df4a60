"""A server process that is kept alive: started, recognised after our own restart, restarted when it dies.

Its record in `$ARENA_HOME/processes` holds pid, start time, port and token. Asking (`look`) takes one step and
never waits, so that a controller can ask again and again.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from arena_runner.server import processes
from arena_runner.server.home import Home
from arena_runner.server.processes import Identity

START_S = 180.0
"""A process that does not answer by then is started again."""
UNHEALTHY_S = 30.0
"""A process that answered once and does not any more is killed after this."""
PORT_WAIT_S = 2.0
"""What a killed predecessor's socket may take to go."""
PAUSES_S = (0.0, 1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before the second, third … start in a row."""

log = logging.getLogger(__name__)
_LOOPBACK = httpx.Client(trust_env=False)
"""A client of its own for every question would read all certificates of this machine each time."""


@dataclass(frozen=True, slots=True)
class Program:
    """How to start it, given its port and token, and how to ask whether it is well."""

    name: str
    command: Callable[[int, str], Sequence[str]]
    environment: Callable[[str], dict[str, str]]
    health: str
    """path of a GET that answers 200 without a token"""
    start_s: float = START_S
    """what a start may take"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running process listens."""

    pid: int
    started: float
    port: int
    token: str

    @property
    def identity(self) -> Identity:
        """The process."""
        return Identity(self.pid, self.started)

    @property
    def url(self) -> str:
        """Loopback only."""
        return f"http://127.0.0.1:{self.port}"


class Supervised:
    """One program of one home. Not thread-safe: one controller asks."""

    def __init__(self, home: Home, program: Program, clock: Callable[[], float] = time.monotonic) -> None:
        self._home, self._program, self._clock = home, program, clock
        self._record = home.processes / f"{program.name}.json"
        self.failures = 0
        """starts since it last answered"""
        self.starts = 0
        """in the life of this server"""
        self._ready = False
        self._since = self._well = clock()
        self.endpoint = self._recall()

    @property
    def log(self) -> Path:
        """Where it prints."""
        return self._home.logs / f"{self._program.name}.log"

    @property
    def last_words(self) -> str:
        """The last line of its log, for messages."""
        return processes.tail(self.log, lines=1)

    def look(self) -> Endpoint | None:
        """The endpoint if it answers; otherwise the next step towards that, and None."""
        now = self._clock()
        if self.endpoint is None or not self.endpoint.identity.alive():
            self._start_when_due(now)
            return None
        if self._answers(self.endpoint):
            self._ready, self._well, self.failures = True, now, 0
            return self.endpoint
        if now - max(self._since, self._well) > (UNHEALTHY_S if self._ready else self._program.start_s):
            log.warning("%s (pid %d) does not answer; killing it", self._program.name, self.endpoint.pid)
            self.stop(grace_s=2.0)
        return None

    def stop(self, grace_s: float) -> None:
        """End it and everything it started."""
        if self.endpoint is None:
            return
        self.endpoint.identity.signal(signal.SIGTERM, group=True)
        if not self.endpoint.identity.wait(grace_s):
            self.endpoint.identity.signal(signal.SIGKILL, group=True)
            self.endpoint.identity.wait(5.0)
        processes.sweep(self.endpoint.identity)
        self._record.unlink(missing_ok=True)
        self.endpoint, self._ready = None, False

    def _start_when_due(self, now: float) -> None:
        if self.endpoint is not None:
            log.warning("%s (pid %d) has ended: %s", self._program.name, self.endpoint.pid, self.last_words)
            processes.sweep(self.endpoint.identity)
        if self.failures and now - self._since < PAUSES_S[min(self.failures, len(PAUSES_S) - 1)]:
            return
        port = _free_port(self.endpoint.port if self.endpoint else self._last_port())
        token = os.urandom(24).hex()
        self.failures += 1
        self.starts += 1
        self._since, self._ready = now, False
        identity = self._launch(port, token)
        if identity is None:
            return
        self.endpoint = Endpoint(identity.pid, identity.started, port, token)
        _write_private(self._record, json.dumps(asdict(self.endpoint)))
        _write_private(self._port_file, str(port))
        log.info("%s started, pid %d, port %d", self._program.name, identity.pid, port)

    def _launch(self, port: int, token: str) -> Identity | None:
        try:
            return processes.start(
                self._program.command(port, token),
                environment=processes.clean_environment(self._program.environment(token)),
                folder=self._home.root,
                log=self.log,
            )
        except OSError as problem:
            log.warning("%s cannot be started: %s", self._program.name, problem)
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"cannot be started: {problem}\n")
            return None

    def _answers(self, endpoint: Endpoint) -> bool:
        try:
            answer = _LOOPBACK.get(endpoint.url + self._program.health, timeout=5.0)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    def _recall(self) -> Endpoint | None:
        """The process our predecessor left, if it is still that process."""
        try:
            known = Endpoint(**json.loads(self._record.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            log.warning("%s is damaged and ignored", self._record)
            return None
        if known.identity.alive():
            return known
        processes.sweep(known.identity)
        return None

    @property
    def _port_file(self) -> Path:
        return self._home.processes / f"{self._program.name}.port"

    def _last_port(self) -> int:
        return int(self._port_file.read_text("utf-8")) if self._port_file.exists() else 0


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _free_port(wanted: int) -> int:
    """The wanted port, so that addresses people know stay good; another only if it stays taken."""
    deadline = time.monotonic() + PORT_WAIT_S
    while wanted and time.monotonic() < deadline:
        if (port := _bound(wanted)) is not None:
            return port
        time.sleep(0.05)
    port = _bound(0)
    if port is None:
        raise OSError("no free port on 127.0.0.1")
    return port


def _bound(port: int) -> int | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return None
        return int(probe.getsockname()[1])
