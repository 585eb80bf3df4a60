"""`arena env`: code of environments, registered by version and tried out on the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, ConfigDict

from arena_gitops.cli import options
from arena_gitops.cli.imperative import consent, tables
from arena_gitops.cli.imperative.archive import pack
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import Place, open_place
from arena_gitops.cli.imperative.stream import teller, uploading
from arena_gitops.cli.session import Session
from arena_gitops.errors import PlatformRejectedError, UsageError
from arena_gitops.platforms.arena_api import EnvironmentSource
from arena_gitops.platforms.arena_rows import EnvironmentVersion, Existence
from arena_gitops.platforms.multipart import FilePart

COLUMNS: tables.Columns[EnvironmentVersion] = {
    "NAME": lambda row: row.name,
    "VERSION": lambda row: row.version,
    "VALIDATED": lambda row: row.validated,
    "PROFILED": lambda row: row.profiled,
}


class Copied(BaseModel):
    """A version that was made of another."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    source_version: str


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_version = click.option("--version", metavar="VERSION", help="Which version. Default: the server's choice.")
_name = click.argument("name", shell_complete=names("environment"))


@click.group(no_args_is_help=True)
def env() -> None:
    """Register, validate and profile environments."""


@explained("arena env list", "arena env list --name merge-env", rows=EnvironmentVersion)
@env.command("list")
@click.option("--name", shell_complete=names("environment"), help="Only this one.")
@click.option(
    "--include-arena/--no-include-arena", default=False, show_default=True, help="Those of the server, too."
)
@options.target
@options.json
@click.pass_obj
def list_(session: Session, *, name: str | None, include_arena: bool, target: str | None) -> None:
    """List the registered environments and their versions."""
    found = open_place(session, target).api.environments(name, include_arena=include_arena)
    tables.show(session, found, COLUMNS, empty="no environments yet")


@explained("arena env exists merge-env --version v2", one=Existence)
@env.command()
@_name
@_version
@options.target
@options.json
@click.pass_context
def exists(ctx: click.Context, *, name: str, version: str | None, target: str | None) -> None:
    """Say whether there is an environment NAME; exit code 1 when there is none."""
    session = ctx.ensure_object(Session)
    found = open_place(session, target).api.environment_exists(name, version)
    if session.json:
        session.emit(Existence(exists=found).model_dump_json())
    else:
        click.echo("exists" if found else "does not exist")
    ctx.exit(0 if found else 1)


@explained("arena env entrypoints merge-env")
@env.command()
@_name
@_version
@options.target
@options.json
@click.pass_obj
def entrypoints(session: Session, *, name: str, version: str | None, target: str | None) -> None:
    """List the classes in an environment's code that can be trained on. --json prints an array of names."""
    found = open_place(session, target).api.entrypoints(name, version)
    if session.json:
        session.emit(json.dumps(found, ensure_ascii=False))
    elif found:
        click.echo("\n".join(found))
    else:
        session.say(f"no entry point in {name}")


@explained(
    "arena env validate merge-env --source merge-env/",
    "arena env validate merge-env --version v1 --do-rollouts",
)
@env.command()
@_name
@click.option("--version", metavar="VERSION", help="Which version. With --source: v1 unless given.")
@click.option(
    "--source",
    type=click.Path(exists=True, path_type=Path),
    help="A folder, a file or a .tar.gz to register.",
)
@click.option("--env-config", type=_FILE, help="Arguments of the environment's constructor, as YAML.")
@click.option("--requirements", type=_FILE, help="Packages its code needs.")
@click.option("--entrypoint", metavar="MODULE:CLASS", help="Which class, when there are several.")
@click.option("--description", help="What it is.")
@click.option("--multi-agent/--single-agent", default=False, show_default=True, help="How many agents act.")
@click.option("--language-based/--classic", default=False, show_default=True, help="Text in, text out (GEM).")
@click.option(
    "--do-rollouts/--no-do-rollouts", default=False, show_default=True, help="Play whole episodes as well."
)
@options.target
@options.json
@click.pass_obj
def validate(
    session: Session,
    /,
    *,
    name: str,
    version: str | None,
    source: Path | None,
    target: str | None,
    **given: Any,
) -> None:
    """Check environment NAME on the server; with --source register its code first.

    Of a folder every file is sent but hidden ones and caches; its requirements.txt and env_config.yaml count unless
    others are given. --json prints one object with name, version, validated, entrypoint and what was measured.
    """
    place = open_place(session, target)
    if source is None:
        body = {"name": name, "version": version, "do_rollouts": given["do_rollouts"]}
        body |= {"entrypoint": given["entrypoint"]} if given["entrypoint"] else {}
        detail = place.api.check_environment("validate", body, teller(session))
    else:
        given |= {"name": name, "version": version or "v1"}
        detail = _create(session, place, source, given)
    _tell(session, name, detail, "valid")


@explained("arena env profile merge-env --version v1")
@env.command()
@_name
@_version
@options.target
@options.json
@click.pass_obj
def profile(session: Session, *, name: str, version: str | None, target: str | None) -> None:
    """Measure what a validated environment needs: steps a second, CPU, memory. --json prints one object of numbers."""
    place = open_place(session, target)
    detail = place.api.check_environment("profile", {"name": name, "version": version}, teller(session))
    _tell(session, name, detail, "profiled")


@explained("arena env delete merge-env --version v1 --yes", one=consent.Deleted)
@env.command()
@_name
@_version
@consent.yes
@options.target
@options.json
@click.pass_obj
def delete(session: Session, *, name: str, version: str | None, yes: bool, target: str | None) -> None:
    """Delete an environment, or only one version of it."""
    which = f"{name} {version}" if version else name
    consent.ask(session, f"Delete environment {which}" + ("" if version else ", all versions"), given=yes)
    open_place(session, target).api.delete_environment(name, version)
    consent.deleted(session, "environment", which)


@explained("arena env duplicate merge-env v2 --version v1", one=Copied)
@env.command()
@_name
@click.argument("new_version")
@_version
@options.target
@options.json
@click.pass_obj
def duplicate(
    session: Session, *, name: str, new_version: str, version: str | None, target: str | None
) -> None:
    """Copy a version of environment NAME, the latest unless --version is given, to NEW_VERSION."""
    source = open_place(session, target).api.duplicate_environment(name, new_version, version)
    if session.json:
        session.emit(Copied(name=name, version=new_version, source_version=source).model_dump_json())
    else:
        click.echo(f"environment {name}: {new_version} is a copy of {source}")


def _create(session: Session, place: Place, source: Path, given: dict[str, Any]) -> dict[str, Any]:
    packed = pack(source)
    flags = ("multi_agent", "language_based", "do_rollouts")
    fields = {flag: str(given[flag]).lower() for flag in flags}
    fields |= {key: given[key] for key in ("name", "version", "entrypoint", "description") if given[key]}
    config = given["env_config"] or _beside(source, "env_config.yaml", "env_config.yml", "env_config.json")
    requirements = given["requirements"] or _beside(source, "requirements.txt")
    wanted = EnvironmentSource(
        archive=FilePart("file", packed.name, packed.content, "application/gzip"),
        config=_sent("env_config", config),
        requirements=_sent("requirements", requirements),
        fields=fields,
    )
    sent = uploading(session, packed.name, len(packed.content))
    try:
        return place.api.create_environment(wanted, sent, teller(session))
    except PlatformRejectedError as error:
        if there := error.rejection.details.get("available_entrypoints"):
            raise UsageError(f"{error}: choose one by --entrypoint; there are {there}") from error
        raise


def _beside(source: Path, *names: str) -> Path | None:
    return next((source / name for name in names if (source / name).is_file()), None)


def _sent(field: str, path: Path | None) -> FilePart:
    return FilePart(field, path.name if path else f"{field}.txt", path.read_bytes() if path else b"")


def _tell(session: Session, name: str, detail: dict[str, Any], verdict: str) -> None:
    if session.json:
        session.emit(json.dumps(detail, ensure_ascii=False))
        return
    for key, value in detail.items():
        if isinstance(value, str | int | float):
            session.say(f"  {key.replace('_', ' ')}: {tables.cell(value)}")
    click.echo(f"environment {name}: {verdict}")
