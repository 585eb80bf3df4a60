"""`arena secrets`: values that rewards are given by name; they are never on a command line and never come back."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import consent, tables
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.errors import UsageError
from arena_gitops.platforms.accounts import Accounts
from arena_gitops.spec.secret import LONGEST, SecretInfo

COLUMNS: tables.Columns[SecretInfo] = {
    "NAME": lambda row: row.name,
    "VERSION": lambda row: str(row.version),
    "STORED": lambda row: time.strftime("%Y-%m-%d %H:%M", time.gmtime(row.updated)),
    "BY": lambda row: row.by,
    "NOTE": lambda row: "" if row.readable else "stored with another key: set it again",
}


@click.group(no_args_is_help=True)
def secrets() -> None:
    """Store values that rewards are given by name."""


@explained(
    "arena secrets set JUDGE_KEY < key.txt",
    "arena secrets set JUDGE_KEY --from-file key.txt",
    one=SecretInfo,
)
@secrets.command("set")
@click.argument("name")
@click.option(
    "--from-stdin", is_flag=True, help="Read the value from standard input; so it is without a terminal."
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the value from a file.",
)
@options.target
@options.json
@click.pass_obj
def set_(
    session: Session, *, name: str, from_stdin: bool, from_file: Path | None, target: str | None
) -> None:
    """Store the value of NAME, typed without echo or read; one line break at its end is dropped.

    A Reward that says `secrets: [NAME]` finds it as the environment variable NAME.
    """
    value = _value(name, from_stdin, from_file)
    stored = Accounts(open_place(session, target).native.door).set_secret(name, value)
    if session.json:
        session.emit(stored.model_dump_json())
    else:
        session.say(f"secret {stored.name} stored")


@explained("arena secrets list", rows=SecretInfo)
@secrets.command("list")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, target: str | None) -> None:
    """List the names of secrets; no value is shown."""
    found = Accounts(open_place(session, target).native.door).secrets()
    tables.show(session, found, COLUMNS, empty="no secrets yet; arena secrets set NAME stores one")


@explained("arena secrets rm JUDGE_KEY --yes", one=consent.Deleted)
@secrets.command()
@click.argument("name")
@consent.yes
@options.target
@options.json
@click.pass_obj
def rm(session: Session, *, name: str, yes: bool, target: str | None) -> None:
    """Forget the secret NAME; runs at work keep what they were given."""
    consent.ask(session, f"Delete secret {name}", given=yes)
    Accounts(open_place(session, target).native.door).delete_secret(name)
    consent.deleted(session, "secret", name)


def _value(name: str, from_stdin: bool, from_file: Path | None) -> str:
    if from_stdin and from_file is not None:
        raise UsageError("--from-stdin and --from-file exclude each other")
    if from_file is not None:
        raw = from_file.read_bytes()
    elif sys.stdin.isatty() and not from_stdin:
        raw = str(
            click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True)
        ).encode()
    else:
        raw = sys.stdin.read(LONGEST + 2).encode()
    try:
        value = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError(
            "the value is no text; encode it, with base64 say, and decode it in the reward"
        ) from None
    if not value or len(value) > LONGEST:
        raise UsageError(f"a value has 1 to {LONGEST} characters, this one {len(value) or 'none'}")
    return value
