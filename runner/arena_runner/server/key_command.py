"""`arena-runner key`: replace the key that a server's secrets are encrypted with, without setting them again."""

from __future__ import annotations

import os
from pathlib import Path

import click

from arena_gitops.errors import UsageError
from arena_runner.server import keys
from arena_runner.server.home import Home
from arena_runner.server.main import open_world
from arena_runner.server.services import secrets
from arena_runner.server.store.address import VARIABLE

HOME = click.option(
    "--home", type=click.Path(path_type=Path), help="Folder of the server; default $ARENA_HOME."
)


@click.group("key")
def command() -> None:
    """Replace the key of a server's secrets: rotate, restart the server, forget."""


@command.command("rotate")
@HOME
def rotate(home: Path | None) -> None:
    """Make a new key. The server uses it from its next start on, and then encrypts every secret anew."""
    keys.rotate(_of_file(home))
    click.echo("a new key was written; restart the server, then: arena-runner key forget")


@command.command("forget")
@HOME
@click.option("--database", help=f"Address of its database; better in {VARIABLE}. Default: SQLite.")
def forget(home: Path | None, database: str | None) -> None:
    """Delete older keys; refused while a secret needs one. Older backups need them: keep those apart."""
    place = _of_file(home)
    world = open_world(place, database)
    try:
        if names := secrets.waiting(world):
            message = f"secrets {', '.join(names)} are encrypted with an older key: restart the server first"
            raise UsageError(message)
    finally:
        world.store.close()
    click.echo(f"older keys deleted: {keys.forget_older(place)}")


def _of_file(home: Path | None) -> Home:
    if os.environ.get(keys.VARIABLE):
        message = f"the key is in {keys.VARIABLE}: put a new one before it there, with a comma, and restart the server"
        raise UsageError(message)
    found = Home.find(home)
    if not found.secret_key.exists():
        raise UsageError(f"{found.root} has no {found.secret_key.name}: nothing was encrypted there yet")
    return found
