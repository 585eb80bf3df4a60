"""Processes that outlive a server: started in sessions of their own, recognised by pid and start time.

A restarted server asks the operating system, not its memory, whether the processes of its predecessor live.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

TOLERANCE_S = 2.0
"""Start times are rounded differently by those who read them."""

KEPT = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_HUB_OFFLINE",
    "HF_HUB_CACHE",
    "TRANSFORMERS_OFFLINE",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "XDG_CACHE_HOME",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
]
"""Variables a child inherits; tokens and secrets of the server's own environment are not among them."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Our own children, kept so that the dead are reaped."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, told apart from a later one that got the same pid."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> Identity:
        """Of a running process; psutil.NoSuchProcess when there is none."""
        return cls(pid, psutil.Process(pid).create_time())

    def alive(self) -> bool:
        """Whether that very process still runs (a zombie does not)."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < TOLERANCE_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the process, or to all of its session, if it still runs."""
        if not self.alive():
            return
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ends within the time."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def sweep(identity: Identity) -> None:
    """Kill what a process that has ended left in its session: children that still hold its port, say."""
    if _is_somebody(identity.pid):
        return  # it lives, or its number was given to another process, whose session is none of ours
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == identity.pid:
                process.kill()


def _is_somebody(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a child may know of our environment, and what it is told on top."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | dict(extra)


def start(command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path) -> Identity:
    """Start a process in a session of its own; what it prints is appended to `log`."""
    folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    _children[child.pid] = child
    return Identity.of(child.pid)


def stop_all(identities: Sequence[Identity], grace_s: float) -> None:
    """Ask all to end, wait together, and kill what is left."""
    for identity in identities:
        identity.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for identity in identities:
        if not identity.wait(max(0.0, deadline - time.monotonic())):
            identity.signal(signal.SIGKILL, group=True)
            identity.wait(5.0)
        sweep(identity)


def tail(log: Path, lines: int = 5, limit: int = 4096) -> str:
    """The last lines a process printed, for messages."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        text = file.read().decode("utf-8", "replace")
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
