"""What calls of a reward took and touched: time, memory, files, programs, connections. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from arena_runner.checks.telling import Remark
from arena_runner.sandbox import Watched

SLOW_S = 1.0
"""an ordinary call beyond this makes training wait for its reward"""
MUCH_BYTES = 1 << 30
MIB = 1 << 20


def taken(calls: Mapping[str, Watched], network: str) -> Iterator[Remark]:
    """Verdicts about time, memory and side effects.

    Args:
        calls: Completion, by name → what scoring it took.
        network: What the Reward declares; `full` may connect.
    """
    if not calls:
        return
    yield from _cost(calls, network)
    allowed = ("connects to ",) if network == "full" else ()
    touched = [
        (name, what)
        for name, call in calls.items()
        for what in call.touched
        if not what.startswith(allowed or "\0")
    ]
    if not touched:
        yield Remark("effects", "pass", "it writes no file, starts no program and opens no connection")
        return
    name, what = touched[0]
    text = f"it {what} (on {name}): a score is to depend on question, answer and completion alone"
    yield Remark("effects", "warn", text)


def _cost(calls: Mapping[str, Watched], network: str) -> Iterator[Remark]:
    usual = median(call.seconds for call in calls.values())
    slowest = max(calls, key=lambda name: calls[name].seconds)
    peak = max(call.peak_bytes for call in calls.values())
    text = (
        f"{_time(usual)} for a usual completion, {_time(calls[slowest].seconds)} for {slowest}; "
        f"{peak / MIB:.0f} MiB of memory at most"
    )
    bad = peak > MUCH_BYTES or (usual > SLOW_S and network != "full")
    yield Remark("cost", "warn" if bad else "pass", text)


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1000:.2g} ms"
