"""`arena unlock`: end the lease of an apply whose holder is gone. Its late writes are refused from then on."""

from __future__ import annotations

import time

import click

from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import open_stack
from arena_gitops.errors import ArenaError, StaleError, UsageError
from arena_gitops.spec.lease import Lease


@click.command()
@click.argument("lease_id", metavar="[ID]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.target
@options.namespace
@options.json
@click.pass_obj
def unlock(session: Session, *, lease_id: str | None, yes: bool, target: str | None, namespace: str) -> None:
    """End the lease that an apply holds on this stack.

    A lease ends by itself a minute after its holder's last sign of life; this is for those who cannot wait. With
    an ID only that lease is ended.
    """
    stack = open_stack(session, target, namespace)
    lease = stack.platform.living_lease(stack.owner)
    if lease is None:
        _tell(session, None, f"nobody holds the lease of stack {stack.owner.stack} in namespace {namespace}")
        return
    if lease_id is not None and lease.id != lease_id:
        raise StaleError(f"the lease is another one by now: {lease.told(time.time())}; its id is {lease.id}")
    session.say(f"stack {stack.owner.stack}: {lease.told(time.time())}; its id is {lease.id}")
    _require_consent(session, yes=yes)
    stack.platform.release_lease(lease.id)
    _tell(session, lease, f"unlocked: the apply of {lease.holder} is refused from now on")


def _require_consent(session: Session, *, yes: bool) -> None:
    if yes:
        return
    if session.json or not session.interactive:
        raise UsageError("nobody can be asked here: add --yes")
    if not click.confirm("End it?", err=True):
        raise ArenaError("not unlocked")


def _tell(session: Session, lease: Lease | None, message: str) -> None:
    if session.json:
        session.emit(lease.model_dump_json() if lease else "null")
    else:
        click.echo(message)
