"""An exception, told to a person on stderr or to a machine as one JSON document, and its exit code."""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import click

from arena_gitops.cli.session import Session
from arena_gitops.errors import (
    ArenaError,
    Diagnostic,
    InterruptedByUserError,
    LockedError,
    PartialApplyError,
    RepoError,
)

ERROR_FORMAT = "1.0"


def report(error: BaseException, session: Session) -> int:
    """Print the error once and return its exit code."""
    if os.environ.get("ARENA_DEBUG") == "1":
        click.echo("".join(traceback.format_exception(error)), err=True)
    code = exit_code(error, session)
    message = message_of(error)
    click.echo(message, err=True)
    if session.events and not session.printed:
        session.event({"type": "error", **document_of(error, code, message)})
    if session.json and not session.printed:
        session.emit(json.dumps(document_of(error, code, message), ensure_ascii=False))
    return code


def exit_code(error: BaseException, session: Session) -> int:
    """The code of the error tree's leaf; an interruption is named after its signal."""
    if isinstance(error, (KeyboardInterrupt, click.Abort, InterruptedByUserError)):
        return 128 + session.signal
    return error.exit_code if isinstance(error, ArenaError) else 1


def message_of(error: BaseException) -> str:
    """What people read."""
    match error:
        case RepoError():
            count = len(error.diagnostics)
            problems = "1 problem" if count == 1 else f"{count} problems"
            return f"{error}\narena: {problems} in {error.where}; nothing was changed"
        case InterruptedByUserError() | ArenaError() if str(error):
            return f"arena: {error}"
        case KeyboardInterrupt() | click.Abort() | InterruptedByUserError():
            return "arena: interrupted"
        case _:
            return (
                f"arena: unexpected {type(error).__name__}: {error}\n"
                "    This is a bug of arena-gitops. ARENA_DEBUG=1 prints where it happened."
            )


def document_of(error: BaseException, code: int, message: str) -> dict[str, Any]:
    """The JSON document that stands in for the one the command could not print."""
    document: dict[str, Any] = {
        "format_version": ERROR_FORMAT,
        "kind": "arena.error",
        "exit_code": code,
        "error": type(error).__name__,
        "message": message,
    }
    if isinstance(error, RepoError):
        document["diagnostics"] = [diagnostic_document(d) for d in error.diagnostics]
    if isinstance(error, LockedError) and error.lease:
        document["lease"] = error.lease
    if isinstance(error, PartialApplyError):
        document["failed"] = [{"address": step.address, "message": step.message} for step in error.failed]
    return document


def diagnostic_document(diagnostic: Diagnostic) -> dict[str, Any]:
    """One problem or remark, with its place."""
    span = diagnostic.span
    return {
        "severity": str(diagnostic.severity),
        "code": diagnostic.code,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
    }
