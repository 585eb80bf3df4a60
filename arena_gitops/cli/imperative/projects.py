"""`arena projects`: names that experiments are gathered under."""

from __future__ import annotations

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli import options
from arena_gitops.cli.imperative import consent, tables
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place, remembered
from arena_gitops.cli.session import Session
from arena_gitops.errors import UsageError
from arena_gitops.platforms.arena_rows import Project

COLUMNS: tables.Columns[Project] = {
    "NAME": lambda row: row.name,
    "TYPE": lambda row: row.type,
    "ID": lambda row: row.id,
    "DESCRIPTION": lambda row: row.description,
}


class DefaultProject(BaseModel):
    """Which project is the default here, if one is."""

    model_config = ConfigDict(frozen=True)

    project: str | None


@click.group(no_args_is_help=True)
def projects() -> None:
    """List, create and delete projects."""


@explained("arena projects list", "arena projects list --json | jq -r '.[].name'", rows=Project)
@projects.command("list")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, target: str | None) -> None:
    """List every project of the server."""
    tables.show(session, open_place(session, target).api.projects(), COLUMNS, empty="no projects yet")


@explained('arena projects create "GSM8K Tutorial" --llm-based', one=Project)
@projects.command()
@click.argument("name")
@click.option("--description", help="What it is for.")
@click.option(
    "--llm-based/--simulation-based", default=False, show_default=True, help="What is trained in it."
)
@options.target
@options.json
@click.pass_obj
def create(
    session: Session, *, name: str, description: str | None, llm_based: bool, target: str | None
) -> None:
    """Create project NAME; one that exists already is no error."""
    made = open_place(session, target).api.create_project(name, description, llm_based=llm_based)
    if session.json:
        session.emit(made.model_dump_json())
    else:
        click.echo(f"project {made.name} ({made.id or made.name})")


@explained("arena projects delete old --yes", one=consent.Deleted)
@projects.command()
@click.argument("name", shell_complete=names("project"))
@consent.yes
@options.target
@options.json
@click.pass_obj
def delete(session: Session, *, name: str, yes: bool, target: str | None) -> None:
    """Delete project NAME; its experiments keep what they have."""
    consent.ask(session, f"Delete project {name}", given=yes)
    place = open_place(session, target)
    place.api.delete_project(name)
    if place.memory.read().project == name:
        place.memory.change(lambda known: known.model_copy(update={"project": None}))
    consent.deleted(session, "project", name)


@explained('arena projects set-default "GSM8K Tutorial"', one=DefaultProject)
@projects.command("set-default")
@click.argument("name", shell_complete=names("project"))
@options.target
@options.json
@click.pass_obj
def set_default(session: Session, *, name: str, target: str | None) -> None:
    """Submit to project NAME when --project is not given, on this machine and to this server."""
    place = open_place(session, target)
    known = [row.name for row in place.api.projects()]
    if name not in known:
        raise UsageError(f"there is no project {name!r} here; there are: {', '.join(known) or 'none'}")
    place.memory.change(lambda before: before.model_copy(update={"project": name}))
    _tell(session, name)


@explained("arena projects get-default", one=DefaultProject)
@projects.command("get-default")
@options.target
@options.json
@click.pass_obj
def get_default(session: Session, target: str | None) -> None:
    """Print the default project, if there is one; asks no server."""
    _tell(session, remembered(target).read().project)


def _tell(session: Session, project: str | None) -> None:
    if session.json:
        session.emit(DefaultProject(project=project).model_dump_json())
    elif project is None:
        session.say("no default project; arena projects set-default NAME sets it")
    else:
        click.echo(project)
