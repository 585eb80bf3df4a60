"""Log lines of the server and of workers: one form for people, one for machines, both saying what they are about.

`with about(run_id=…)` marks every line that is written inside, in this thread or task and in what it calls. Fields
hold ids and figures, never tokens, never query strings.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import click

Form = Literal["text", "json", "plain"]
"""`plain`: the words alone, for a file that is about one thing already"""

ENVIRONMENT = "ARENA_LOG_FORMAT"
FIELDS = (
    "request_id",
    "subject",
    "method",
    "route",
    "status",
    "ms",
    "run_id",
    "segment",
    "deployment",
    "worker_id",
)
"""What a line can be about, in the order in which a person reads it."""

QUIET = ("httpx", "httpx2", "httpcore", "alembic", "mlflow")
"""Libraries that tell every call: their warnings are enough."""

_hidden: set[str] = set()

_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


option = click.option(
    "--log-format",
    type=click.Choice(["text", "json", "plain"]),
    envvar=ENVIRONMENT,
    help=f"Form of the log's lines; also {ENVIRONMENT}.",
)
"""for every command that runs for long"""


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Mark the lines written inside; a field that is None is left out."""
    token = _about.set(
        {**_about.get(), **{name: value for name, value in fields.items() if value is not None}}
    )
    try:
        yield
    finally:
        _about.reset(token)


def field(name: str) -> Any:
    """What the current lines are about; None when they are not about that."""
    return _about.get().get(name)


def hide(secret: str) -> None:
    """Never write this word, whoever says it: a library's own warning, a traceback, an exception's text."""
    _hidden.add(secret)


def discreet(text: str) -> str:
    """The text without the hidden words."""
    for secret in _hidden:
        text = text.replace(secret, "***")
    return text


def configure(form: Form, stream: TextIO | None = None) -> None:
    """Send every line of this process to one stream (default: standard error) in one form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Discreet(_formatter(form)))
    handler.addFilter(_mark)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for library in QUIET:
        logging.getLogger(library).setLevel(logging.WARNING)


def _mark(record: logging.LogRecord) -> bool:
    for name, value in _about.get().items():
        if name not in record.__dict__:  # the line's own word is the better one
            record.__dict__[name] = value
    return True


def _formatter(form: Form) -> logging.Formatter:
    if form == "plain":
        return logging.Formatter("%(message)s")
    if form == "text":
        return _ForPeople("%(asctime)s %(levelname)s %(name)s: %(message)s")
    from pythonjsonlogger.json import JsonFormatter

    names = {"levelname": "level", "name": "logger", "exc_info": "traceback"}
    return JsonFormatter("%(levelname)s %(name)s %(message)s", rename_fields=names, timestamp="time")


class _Discreet(logging.Formatter):
    """Another form without the hidden words."""

    def __init__(self, form: logging.Formatter) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        return discreet(self._form.format(record))


class _ForPeople(logging.Formatter):
    """The usual line with what it is about at its end."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        known = ((name, record.__dict__.get(name)) for name in FIELDS)
        told = " ".join(f"{name}={value}" for name, value in known if value is not None)
        return super().formatMessage(record) + (f" ({told})" if told else "")
