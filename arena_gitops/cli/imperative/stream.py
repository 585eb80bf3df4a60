"""What a server says while it checks or uploads: remarks and verdicts on stderr, one line each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from arena_gitops.cli.session import Session
from arena_gitops.platforms.arena_rows import StreamLine

MIB = 2**20
TELL_FROM = 4 * MIB
"""Smaller uploads are over before anybody could read about them."""
REDRAW_S = 0.1


def teller(session: Session) -> Callable[[StreamLine], None]:
    """A listener of a streamed answer."""

    def tell(line: StreamLine) -> None:
        for text in told(line):
            session.say(text)

    return tell


def told(line: StreamLine) -> list[str]:
    """A line of the stream in words; verdicts have their mark in front."""
    if line.kind == "check" and line.detail is not None:
        return _verdict(line.detail)
    if not line.message:
        return []
    return [f"warning: {line.message}" if line.kind == "warning" else line.message]


def _verdict(detail: dict[str, Any]) -> list[str]:
    result = detail.get("result")
    found: dict[str, Any] = result if isinstance(result, dict) else {}
    name = detail.get("check", "check")
    if not found.get("success"):
        why = found.get("error") or found.get("error msg") or "failed"
        return [f"  FAIL {name}: {why}"]
    warnings = found.get("warnings") or []
    return [f"  warn {name}: {text}" for text in warnings] or [f"  ok   {name}"]


def uploading(session: Session, what: str, total: int) -> Callable[[int], None]:
    """Told how many bytes are out: a line that is redrawn on a terminal, two lines elsewhere."""
    if total < TELL_FROM:
        return lambda _done: None
    if not sys.stderr.isatty():
        session.say(f"uploading {what} ({size(total)})")
    progress = _Upload(session, what, total, drawn=sys.stderr.isatty())
    return progress.sent


class _Upload:
    """How far one upload is; its end is told once, although the form around the files goes on a little."""

    def __init__(self, session: Session, what: str, total: int, *, drawn: bool) -> None:
        self._session, self._what, self._total, self._drawn = session, what, total, drawn
        self._last = 0.0
        self._over = False

    def sent(self, done: int) -> None:
        if self._over:
            return
        self._over = done >= self._total
        if self._drawn:
            self._draw(min(done, self._total))
        elif self._over:
            self._session.say(f"uploaded {self._what}")

    def _draw(self, done: int) -> None:
        now = time.monotonic()
        if self._over or now - self._last >= REDRAW_S:
            self._last = now
            line = f"uploading {self._what}: {100 * done // self._total:3d}% of {size(self._total)}"
            click.echo(f"\r{line}", nl=self._over, err=True)


def size(count: int) -> str:
    """`12.3 MiB`."""
    return f"{count / MIB:.1f} MiB"
