"""`arena explain`: why one resource is, or is not, trained anew. Changes nothing."""

from __future__ import annotations

import os

import click

from arena_gitops import app
from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import UsageError
from arena_gitops.plan.explain import explain as explain_address
from arena_gitops.report import explanation
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.resource import Address


@click.command()
@click.argument("address", metavar="ADDR")
@options.target
@options.namespace
@options.json
@click.pass_obj
def explain(session: Session, *, address: str, target: str | None, namespace: str) -> None:
    """Show why a resource is, or is not, trained anew.

    ADDR is KIND/NAME. Prints both fingerprints part by part, and the fields, files and parents that differ.
    """
    repository = Repository.read(namespace)
    choice = repository.choose(target)
    platform = session.using(
        connect(choice, os.environ, say=session.say, run_named=False, book=repository.desired.resources)
    )
    planned, observed = app.compare(platform, repository.desired, target=choice.name)
    known = {str(known) for known in (*repository.desired.resources, *observed.resources)}
    if address not in known:
        raise UsageError(f"there is no {address}; {suggestion(address, known)}")
    found = explain_address(
        Address.parse(address), repository.desired, observed, planned, root=repository.root.resolve()
    )
    if session.json:
        session.emit(found.model_dump_json(by_alias=True))
    else:
        click.echo(explanation.render(found), nl=False)
