"""Nothing is deleted by accident: a person is asked, a script says `--yes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli.session import Session
from arena_gitops.errors import ArenaError, UsageError


class Deleted(BaseModel):
    """What a deletion prints as JSON."""

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str
    deleted: bool = True


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
    """Say so."""
    if session.json:
        session.emit(Deleted(kind=kind, name=name).model_dump_json())
    else:
        session.say(f"{kind} {name} deleted")
