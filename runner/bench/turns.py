"""Contenders in processes of their own that take turns: one computes while the others wait.

A contender is a script that answers requests, one JSON object a line, with figures; each may live in a virtual
environment of its own. Every answer carries the CPU seconds of the request and the largest resident memory since the
process began or since `forget_peak`. This file is imported on both sides, so it needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).resolve().parent
MIB = 1024**2


POPULATION = ("iterate", "evaluate", "evolve", "sizes", "tell")


def asked_of(members: Any) -> dict[str, Callable[..., Mapping[str, Any] | None]]:
    """What a contender that trains a population can be asked."""
    return {action: getattr(members, action) for action in POPULATION}


class Contender:
    """The parent's end of one process; a context manager."""

    def __init__(self, name: str, python: str, script: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self._command = [python, str(HERE / "contenders" / script), json.dumps(dict(settings))]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it has loaded."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.ask("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        """One turn."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"action": action, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended while it was asked to {action}; what it said stands above")
        return dict(json.loads(answer))


def in_turn(
    contenders: Sequence[Contender], action: str, *, repeats: int, warm: int = 1, **arguments: Any
) -> dict[str, dict[str, Any]]:
    """The same request to all, `repeats` times over; medians of the CPU seconds, last of everything else."""
    answers: dict[str, list[dict[str, Any]]] = {each.name: [] for each in contenders}
    for turn in range(warm + repeats):
        for each in contenders:
            answer = each.ask(action, **arguments)
            if turn >= warm:
                answers[each.name].append(answer)
    return {name: {**own[-1], "cpu_s": median(one["cpu_s"] for one in own)} for name, own in answers.items()}


def serve(
    build: Callable[[Mapping[str, Any]], Mapping[str, Callable[..., Mapping[str, Any] | None]]],
) -> None:
    """The contender's end: build from the settings, then answer until the parent is gone."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is for people, not for the parent
    actions = {"ready": lambda: None, "forget_peak": forget_peak} | dict(build(json.loads(sys.argv[1])))
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        told = actions[request["action"]](**request["arguments"]) or {}
        figures = {
            "cpu_s": time.process_time() - began,
            "peak_mib": memory("VmHWM"),
            "rss_mib": memory("VmRSS"),
        }
        channel.write(json.dumps({**figures, **told}) + "\n")
        channel.flush()


def memory(line: str) -> float:
    """A figure of `/proc/self/status` in MiB."""
    status = Path("/proc/self/status").read_text("ascii", errors="replace")
    return int(status.partition(line + ":")[2].split()[0]) / 1024


def forget_peak() -> None:
    """Let the largest resident memory start anew from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
