"""`arena drift`: where the platform is not as the repository says. Changes nothing."""

from __future__ import annotations

import os

import click

from arena_gitops import app
from arena_gitops.cli import options
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.plan.drift import Drift, stored_files
from arena_gitops.plan.drift import drift as find_drift
from arena_gitops.report import words

EXITS = {"clean": 0, "drifted": app.EXIT_CHANGES, "errored": 1}
"""what `--detailed-exitcode` says of each status"""


@click.command()
@options.target
@options.namespace
@options.json
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 2 when something deviates, with 1 when something could not be looked at.",
)
@click.pass_context
def drift(ctx: click.Context, *, target: str | None, namespace: str, detailed_exitcode: bool) -> None:
    """Show where the platform is not as the repository says.

    Meant for a checkout that has been applied: runs that somebody stopped or that failed, deployments that are
    held, resources that differ or are gone, stored files that are lost or damaged. `arena plan` shows what an apply would do about it.
    """
    session = ctx.ensure_object(Session)
    repository = Repository.read(namespace)
    choice = repository.choose(target)
    platform = session.using(
        connect(choice, os.environ, say=session.say, run_named=False, book=repository.desired.resources)
    )
    planned, observed = app.compare(platform, repository.desired, target=choice.name)
    unsound = platform.unsound_blobs(sorted(stored_files(observed)))
    found = find_drift(planned, repository.desired, observed, unsound)
    if session.json:
        session.emit(found.model_dump_json())
    else:
        for line in _lines(found):
            click.echo(line)
    ctx.exit(EXITS[found.status] if detailed_exitcode else 0)


def _lines(found: Drift) -> list[str]:
    rest = [words.unmanaged(found.unmanaged)] if found.unmanaged else []
    rest = [*(f"? {entry.address}  {entry.message}" for entry in found.errors), *rest]
    if not found.entries:
        return [f"No drift: {found.target} is as stack {found.stack} says.", *rest]
    width = max(len(entry.address) for entry in found.entries)
    lines = [f"≠ {entry.address:<{width}}  {entry.message}" for entry in found.entries]
    count = len(found.entries)
    return [
        *lines,
        f"Drift: {count} resource{'' if count == 1 else 's'} of stack {found.stack} on {found.target}.",
        *rest,
    ]
