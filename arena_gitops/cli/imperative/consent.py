"""Nothing is deleted by accident: a person is asked, a script says `--yes`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from arena_gitops.cli.session import Session
from arena_gitops.errors import ArenaError, UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def yes(command: Command) -> Command:
    """`--yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; needed without a terminal.")(command)


def ask(session: Session, what: str, *, given: bool) -> None:
    """Go on only with consent; `what` completes `Delete …?`."""
    if given:
        return
    if session.json or not session.interactive:
        raise UsageError(f"{what} needs consent: add --yes")
    if not click.confirm(f"{what}?", err=True):
        raise ArenaError("nothing was changed")


def deleted(session: Session, kind: str, name: str) -> None:
    """Say so; as JSON `{"kind": …, "name": …, "deleted": true}`."""
    if session.json:
        session.emit(json.dumps({"kind": kind, "name": name, "deleted": True}, ensure_ascii=False))
    else:
        session.say(f"{kind} {name} deleted")
