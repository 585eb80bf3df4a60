"""`arena validate`: read the repository and say everything that is wrong with it. Reaches no platform."""

from __future__ import annotations

import json

import click

from arena_gitops.cli import options
from arena_gitops.cli.report_error import diagnostic_document
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository


@click.command()
@options.namespace
@options.json
@click.pass_obj
def validate(session: Session, namespace: str) -> None:
    """Check the repository's files; reach no platform.

    Every problem is printed with its file, line and column; exit code 65 when there is one.
    """
    desired = Repository.read(namespace).desired
    if session.json:
        document = {
            "format_version": "1.0",
            "kind": "arena.validation",
            "valid": True,
            "stack": desired.owner.stack,
            "resources": [str(address) for address in sorted(desired.resources)],
            "diagnostics": [diagnostic_document(note) for note in desired.notes],
        }
        session.emit(json.dumps(document, ensure_ascii=False))
        return
    for note in desired.notes:
        session.say(str(note))
    counts = f"{len(desired.resources)} resource{'' if len(desired.resources) == 1 else 's'}"
    click.echo(f"valid: {counts} of stack {desired.owner.stack}")
