"""What an apply was about to do, and what came of it: one JSON line before each call, one after.

A line without its answer means that nobody knows whether the call arrived; the next apply looks at the platform
and knows. The file is kept in the git directory, so it is never committed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_gitops.plan.model import Change

LONGEST = 1 << 20
"""Bytes after which a journal without open ends is put aside; one older one is kept."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that was begun."""

    seq: int
    address: str
    action: str
    idempotency_key: str | None
    etag: str | None = None
    """at which the resource was before the call; None: it did not exist"""


class Journal:
    """An append-only file of intents and results, for several threads; without a path nothing is kept."""

    def __init__(self, path: Path | None, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._seq = _last_seq(path)

    def unresolved(self) -> tuple[Intent, ...]:
        """Calls of an earlier apply of which no result was written: it was killed there."""
        return () if self._path is None else unresolved(self._path)

    def begin(self, change: Change) -> int:
        """Write down what is about to be done; the number identifies it."""
        line = {
            "address": change.address,
            "action": change.action.value,
            "idempotency_key": change.idempotency_key,
            "etag": change.preconditions.etag,
        }
        with self._lock:
            self._seq += 1
            self._write({"seq": self._seq, **line})
            return self._seq

    def end(self, seq: int, outcome: str, *, etag: str | None = None, message: str = "") -> None:
        """Write down what came of it."""
        line: dict[str, Any] = {"seq": seq, "outcome": outcome}
        with self._lock:
            self._write(line | {k: v for k, v in (("etag", etag), ("message", message)) if v})

    def put_aside_if_long(self) -> None:
        """Begin a new file when the old one is long and has no open end."""
        path = self._path
        if path is not None and path.exists() and path.stat().st_size > LONGEST and not unresolved(path):
            path.replace(path.with_name(path.name + ".1"))

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**line, "ts": round(self._now(), 3)}, ensure_ascii=False) + "\n"
        torn = self._path.exists() and not _ends_whole(self._path)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + text if torn else text)
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
                line["seq"],
                line["address"],
                line["action"],
                line.get("idempotency_key"),
                line.get("etag"),
            )
    return tuple(open_intents.values())


def _last_seq(path: Path | None) -> int:
    return 0 if path is None else max((line["seq"] for line in _lines(path)), default=0)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lines(path: Path) -> list[dict[str, Any]]:
    """Every whole line; a torn one (power loss) was never acted upon."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text("utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("seq"), int):
            found.append(line)
    return found
