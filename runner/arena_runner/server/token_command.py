"""`arena-runner token`: make, list and revoke tokens in a server's own database, whether it runs or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from arena_gitops.spec.fields import read_duration
from arena_runner.server.auth import Role
from arena_runner.server.home import Home
from arena_runner.server.main import open_world
from arena_runner.server.services import tokens
from arena_runner.server.services.tokens import Listed
from arena_runner.server.store.address import VARIABLE
from arena_runner.server.world import World

COLUMNS = ("id", "kind", "role", "name", "who", "tier", "state", "created", "expires", "last used")


class Lasting(click.ParamType[float]):
    """`90d`, `12h`: how long from now, in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the text, or fail with what was expected."""
        try:
            seconds = value if isinstance(value, float) else read_duration(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
        if seconds <= 0:
            self.fail("it must last longer than that", param, ctx)
        return seconds


@dataclass(frozen=True, slots=True)
class Where:
    """Which server's tokens."""

    home: Home
    database: str | None


@click.group("token")
@click.option("--home", type=click.Path(path_type=Path), help="Folder of the server; default $ARENA_HOME.")
@click.option(
    "--database", help=f"Address of its database; better in {VARIABLE}. Default: the server's settings."
)
@click.pass_context
def command(ctx: click.Context, home: Path | None, database: str | None) -> None:
    """Make, list and revoke the tokens of a server."""
    ctx.obj = Where(Home.find(home), database)


@command.command("create")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do."
)
@click.option("--name", default="", help="Who or what will use it, as it appears in lists and records.")
@click.option("--tier", help="The only tier that a worker with this token may serve.")
@click.option("--expires", type=Lasting(), help="How long it lasts, such as 90d; default: until revoked.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def create(
    where: Where,
    *,
    role: str,
    name: str,
    tier: str | None,
    expires: float | None,
    as_json: bool,
) -> None:
    """Make a token. Its text is printed once, alone on standard output, and kept nowhere."""
    with _opened(where) as world:
        text, token = tokens.create(world, Role(role), name=name, tier=tier, lasts_s=expires)
    if as_json:
        click.echo(json.dumps({"token": text, **asdict(token)}))
        return
    ends = f"until {_date(token.expires)}" if token.expires else "until it is revoked"
    click.echo(f"token {token.id}, role {token.role}, {ends}; this is the only time it is shown:", err=True)
    click.echo(text)


@command.command("list")
@click.option("--all", "dead", is_flag=True, help="Also those that have expired or been revoked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def listing(where: Where, dead: bool, as_json: bool) -> None:
    """List tokens, browsers and logins."""
    with _opened(where) as world:
        found = tokens.listing(world, dead=dead)
    if as_json:
        click.echo(json.dumps([asdict(token) for token in found]))
        return
    rows = [COLUMNS, *(_row(token) for token in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command("revoke")
@click.argument("token_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def revoke(where: Where, token_id: str, as_json: bool) -> None:
    """End a token, and the browsers and logins made from it, at once."""
    with _opened(where) as world:
        token = tokens.revoke(world, token_id)
    click.echo(
        json.dumps(asdict(token)) if as_json else f"revoked {token.id} ({token.role} {token.name})".rstrip()
    )


@contextmanager
def _opened(where: Where) -> Iterator[World]:
    where.home.prepare()
    world = open_world(where.home, where.database)
    try:
        yield world
    finally:
        world.store.close()


def _row(token: Listed) -> tuple[str, ...]:
    cells = (token.id, token.kind, token.role, token.name, token.subject, token.tier or "", token.state)
    used = _date(token.last_used) if token.last_used else "never"
    return (*cells, _date(token.created), _date(token.expires) if token.expires else "never", used)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
