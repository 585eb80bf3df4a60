"""Is that process still the one we mean? A pid alone is not an identity: numbers are used again.

A process is named by its pid and the time it started, seconds since the epoch, as `psutil.create_time`
gives it on the other side; this side has no psutil and reads the same figures itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

TOLERANCE_S = 2.0
"""Kernel ticks, rounding and a stepped clock; a pid does not come round again in that time."""


def started_at(pid: int) -> float | None:
    """When the process started, or None when there is none (a zombie is none)."""
    return _started_linux(pid) if sys.platform == "linux" else _started_ps(pid)


def is_same(pid: int, started: float) -> bool:
    """Whether the process that was noted with this pid and start time still runs."""
    now = started_at(pid)
    return now is not None and abs(now - started) <= TOLERANCE_S


def terminate(pid: int, started: float, *, timeout_s: float) -> bool:
    """Ask it to end and wait; whether it is gone."""
    if not is_same(pid, started):
        return True
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while is_same(pid, started):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _started_linux(pid: int) -> float | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses itself; fields count from after the last one.
    state, *fields = stat.rpartition(")")[2].split()
    if state in {"Z", "X"}:
        return None
    ticks = int(fields[18])  # field 22 of proc(5), starttime
    booted = next(float(line.split()[1]) for line in boot.splitlines() if line.startswith("btime"))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def _started_ps(pid: int) -> float | None:
    answer = subprocess.run(
        ["ps", "-p", str(pid), "-o", "lstart="],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    text = answer.stdout.strip()
    return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").astimezone().timestamp() if text else None
