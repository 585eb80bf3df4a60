"""`arena user`: who the server takes you for, and what was spent."""

from __future__ import annotations

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.platforms.accounts import Accounts, Credits, Profile


@click.group(no_args_is_help=True)
def user() -> None:
    """Show who you are to the server, and what was spent."""


@explained("arena user profile", one=Profile)
@user.command()
@options.target
@options.json
@click.pass_obj
def profile(session: Session, target: str | None) -> None:
    """Show whose token is used, and its role."""
    found = Accounts(open_place(session, target).native.door).profile()
    if session.json:
        session.emit(found.model_dump_json())
    else:
        click.echo(f"{found.subject} ({found.role})")


@explained("arena user credits", one=Credits)
@user.command("credits")
@options.target
@options.json
@click.pass_obj
def credits_(session: Session, target: str | None) -> None:
    """Show what finished work has cost on this server."""
    found = Accounts(open_place(session, target).native.door).credits()
    if session.json:
        session.emit(found.model_dump_json())
    else:
        click.echo(f"{found.spent:g} credits spent in {found.worker_hours:g} worker hours")
