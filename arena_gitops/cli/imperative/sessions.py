"""`arena agent sessions`: conversations with a deployment."""

from __future__ import annotations

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli import options
from arena_gitops.cli.imperative import agents, consent, tables
from arena_gitops.cli.imperative.agents import Which
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.errors import UsageError
from arena_gitops.platforms.arena_rows import ChatSession, Conversation

COLUMNS: tables.Columns[ChatSession] = {
    "SESSION": lambda row: row.session_id,
    "LAST USED": lambda row: row.last_updated,
    "BEGUN": lambda row: row.created_at,
}


class GoingOn(BaseModel):
    """The conversation that later prompts go on with, if any."""

    model_config = ConfigDict(frozen=True)

    deployment: str
    session_id: str | None


@click.group(no_args_is_help=True)
def sessions() -> None:
    """List, read, continue and delete conversations with a deployment."""


@explained("arena agent sessions list gsm8k-grpo-v1", rows=ChatSession)
@sessions.command("list")
@agents.which(required=False)
@options.target
@options.json
@click.pass_obj
def list_(session: Session, *, which: Which, target: str | None) -> None:
    """List your conversations with a deployment, the one used last first."""
    place = open_place(session, target)
    tables.show(session, agents.at(place, which, place.api.sessions), COLUMNS, empty="no conversations yet")


@explained("arena agent sessions get 0b0e7a4c gsm8k-grpo-v1", one=Conversation)
@sessions.command()
@click.argument("session_id")
@agents.which(required=False)
@options.target
@options.json
@click.pass_obj
def get(session: Session, *, session_id: str, which: Which, target: str | None) -> None:
    """Show what was said in one conversation."""
    place = open_place(session, target)
    found = agents.at(place, which, lambda name: place.api.conversation(name, session_id))
    if session.json:
        session.emit(found.model_dump_json())
        return
    for message in found.messages:
        click.echo(f"{message.role}: {message.content}")


@explained("arena agent sessions resume gsm8k-grpo-v1 --session-id 0b0e7a4c", one=GoingOn)
@sessions.command()
@agents.which(required=False)
@click.option("--session-id", metavar="ID", help="Which one. Default: the one used last.")
@options.target
@options.json
@click.pass_obj
def resume(session: Session, *, which: Which, session_id: str | None, target: str | None) -> None:
    """Go on with a conversation in later prompts to this deployment, until arena agent sessions clear."""
    place = open_place(session, target)
    name, found = agents.at(place, which, lambda name: (name, place.api.sessions(name)))
    known = [row.session_id for row in found]
    chosen = session_id or (known[0] if known else None)
    if chosen not in known:
        raise UsageError(
            f"there is no conversation {chosen!r} with {name}"
            if chosen
            else f"no conversations with {name} yet"
        )
    agents.remember(place, name, chosen)
    _tell(session, name, chosen)


@explained("arena agent sessions delete 0b0e7a4c gsm8k-grpo-v1 --yes", one=consent.Deleted)
@sessions.command()
@click.argument("session_id")
@agents.which(required=False)
@consent.yes
@options.target
@options.json
@click.pass_obj
def delete(session: Session, *, session_id: str, which: Which, yes: bool, target: str | None) -> None:
    """Delete a conversation on the server."""
    consent.ask(session, f"Delete conversation {session_id}", given=yes)
    place = open_place(session, target)

    def forget(name: str) -> str:
        place.api.forget(name, session_id)
        return name

    name = agents.at(place, which, forget)
    if place.memory.read().sessions.get(name) == session_id:
        agents.remember(place, name, None)
    consent.deleted(session, "session", session_id)


@explained("arena agent sessions clear gsm8k-grpo-v1", one=GoingOn)
@sessions.command()
@agents.which(required=False)
@options.target
@options.json
@click.pass_obj
def clear(session: Session, *, which: Which, target: str | None) -> None:
    """Let later prompts stand for themselves again; the server keeps what was said."""
    place = open_place(session, target)
    name = agents.named(place, which)
    agents.remember(place, name, None)
    _tell(session, name, None)


def _tell(session: Session, name: str, chosen: str | None) -> None:
    if session.json:
        session.emit(GoingOn(deployment=name, session_id=chosen).model_dump_json())
    else:
        session.say(f"{name}: " + (f"going on with {chosen}" if chosen else "no conversation goes on"))
