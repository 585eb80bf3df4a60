"""What one invocation knows about itself: how it shall print, what interrupted it, where the user stands.

Passed as click's context object. Light: imported for `arena --help`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from arena_gitops.cli.glance import Question


class Closable(Protocol):
    """Something with an end."""

    def close(self) -> None:
        """Give back what it holds."""
        ...


Resource = TypeVar("Resource", bound=Closable)


class Session:
    """One run of the command line."""

    def __init__(self) -> None:
        self.json = False
        """stdout carries exactly one JSON document; everything for people goes to stderr"""
        self.events = False
        """stdout carries one JSON object a line, as things happen"""
        self.signal: int = signal.SIGINT
        """the signal behind a KeyboardInterrupt"""
        self.printed = False
        """whether the JSON document is out already"""
        self.question: Question | None = None
        """what a plan was asked, for its answer to be kept"""
        self._open = ExitStack()

    def using(self, resource: Resource) -> Resource:
        """Keep something open until the command has ended."""
        self._open.callback(resource.close)
        return resource

    def close(self) -> None:
        """Close everything that was used."""
        self._open.close()

    def chdir(self, folder: str) -> None:
        """`--chdir`: relative paths of later options are read from there, as with `make -C`."""
        os.chdir(folder)

    def say(self, message: str) -> None:
        """A line about what is going on: stderr, never stdout."""
        click.echo(message, err=True)

    def emit(self, document: str) -> None:
        """Print the one JSON document."""
        click.echo(document)
        self.printed = True

    def event(self, document: Mapping[str, Any]) -> None:
        """Print one line of the stream of events."""
        import json

        click.echo(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
        sys.stdout.flush()

    @property
    def quiet(self) -> bool:
        """Whether stdout belongs to a machine: what is for people goes to stderr."""
        return self.json or self.events

    @contextmanager
    def finishing(self) -> Iterator[Callable[[], bool]]:
        """Within, a first SIGINT or SIGTERM asks to stop (the yielded question says so); a second interrupts."""
        asked: list[int] = []

        def ask(number: int, _frame: FrameType | None) -> None:
            self.signal = number
            if asked:
                raise KeyboardInterrupt
            asked.append(number)
            self.say("stopping: what has begun is finished and recorded; once more to stop at once")

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield lambda: bool(asked)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()


def columns() -> int | None:
    """Of the terminal that stdout is; None where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None
