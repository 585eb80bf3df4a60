"""What an apply was about to do, and what came of it: one JSON line before each call, one after.

A line without its answer means that nobody knows whether the call arrived; the next plan looks at the
platform and knows. The file is kept in the git directory, so it is never committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_gitops.plan.model import Change


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that was begun."""

    seq: int
    address: str
    action: str
    idempotency_key: str | None


class Journal:
    """An append-only file of intents and results; without a path nothing is kept."""

    def __init__(self, path: Path | None, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._seq = _last_seq(path)

    def begin(self, change: Change) -> int:
        """Write down what is about to be done; the number identifies it."""
        self._seq += 1
        self._write(
            {
                "seq": self._seq,
                "address": change.address,
                "action": change.action.value,
                "idempotency_key": change.idempotency_key,
            }
        )
        return self._seq

    def end(self, seq: int, outcome: str, *, etag: str | None = None, message: str = "") -> None:
        """Write down what came of it."""
        line: dict[str, Any] = {"seq": seq, "outcome": outcome}
        self._write(line | {k: v for k, v in (("etag", etag), ("message", message)) if v})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**line, "ts": round(self._now(), 3)}, ensure_ascii=False) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def unresolved(path: Path) -> tuple[Intent, ...]:
    """Calls that were begun and of which no result was written: an apply was killed there."""
    open_intents: dict[int, Intent] = {}
    for line in _lines(path):
        if "outcome" in line:
            open_intents.pop(line["seq"], None)
        else:
            open_intents[line["seq"]] = Intent(
                line["seq"], line["address"], line["action"], line.get("idempotency_key")
            )
    return tuple(open_intents.values())


def _last_seq(path: Path | None) -> int:
    return 0 if path is None else max((line["seq"] for line in _lines(path)), default=0)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line; a torn last one (power loss) was never acted upon."""
    if not path.exists():
        return []
    whole = path.read_text("utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in whole if line.endswith("\n")]
