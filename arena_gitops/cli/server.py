"""`arena server`: the life of the embedded server, by hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.errors import ArenaError
from arena_gitops.platforms.local import Home, answers, find_runner, open_local, stop_local


@click.group(no_args_is_help=True)
def server() -> None:
    """Start, stop and inspect the local server."""


@server.command()
@click.option(
    "--runner", metavar="PATH", help="The arena-runner to start when none is beside arena or on PATH."
)
@click.pass_obj
def start(session: Session, runner: str | None) -> None:
    """Start the local server, or say where it is."""
    platform = session.using(
        open_local(Home.of(os.environ), find=lambda: find_runner(runner), say=session.say)
    )
    click.echo(platform.url)


@server.command()
@click.pass_obj
def stop(session: Session) -> None:
    """Stop the local server; its runs continue from their last checkpoint at the next start."""
    home = Home.of(os.environ)
    stopped = stop_local(home)
    session.say("local server stopped" if stopped else f"no local server runs in {home.path}")


@server.command()
@options.json
@click.pass_context
def status(ctx: click.Context) -> None:
    """Say whether the local server runs and where; exit code 1 when it does not."""
    session = ctx.ensure_object(Session)
    home = Home.of(os.environ)
    running = home.running()
    healthy = running is not None and answers(running)
    state = "running" if healthy else "not answering" if running else "not running"
    if session.json:
        document = {
            "state": state,
            "home": str(home.path),
            "log": str(home.log),
            "pid": running.pid if running else None,
            "url": running.url if running else None,
            "version": running.version if running else None,
        }
        session.emit(json.dumps(document))
    elif running:
        click.echo(
            f"{state}: {running.url} (pid {running.pid}, version {running.version})\nhome: {home.path}"
        )
    else:
        click.echo(f"{state}\nhome: {home.path}")
    ctx.exit(0 if healthy else 1)


@server.command()
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True, help="Last lines to print."
)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until interrupted.")
def logs(lines: int, follow: bool) -> None:
    """Print the local server's log."""
    home = Home.of(os.environ)
    if not home.log.exists():
        raise ArenaError(f"there is no log: {home.log} does not exist")
    for text in _read(home.log, lines, follow=follow):
        click.echo(text, nl=False)


def _read(path: Path, lines: int, *, follow: bool) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        kept = file.readlines()
        yield from kept[len(kept) - min(lines, len(kept)) :]
        while follow:
            if text := file.readline():
                yield text
            else:
                time.sleep(0.3)
