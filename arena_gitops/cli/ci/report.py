"""`arena ci report`: training takes longer than a job may, so another job tells what has come of it.

Which pull request a run belongs to is what the server keeps of it: the commit from which it was applied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from arena_gitops.cli import options
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.plan import place_of
from arena_gitops.cli.ci.sticky import open_github, upsert
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import choose_anywhere, open_stack
from arena_gitops.errors import PlatformRejectedError
from arena_gitops.platforms.github import GitHub, Pull
from arena_gitops.repo.git import find_root, latest
from arena_gitops.report.results import results, results_key
from arena_gitops.spec.wire import ResourceDocument

MOST_COMMITS = 100
"""How far back: what was merged before that has been told."""


@click.command()
@options.target
@options.namespace
@click.pass_obj
def report(session: Session, *, target: str | None, namespace: str) -> None:
    """Tell merged pull requests what has come of the runs they began.

    For a scheduled workflow, with a key that may only read. Each pull request has one such comment, from the first
    run that ends on. Set the output `ended` to how many of the runs have.
    """
    actions = session.using(Actions.read(os.environ))
    root = find_root(Path.cwd())
    stack = open_stack(session, target, namespace)
    place = place_of(actions, root, choose_anywhere(target).name).place
    observed = stack.platform.observe(stack.owner)
    documents = [document for _, document in sorted(observed.resources.items())]
    github, ended = open_github(session, actions), 0

    def is_ours(old: str) -> bool:
        return old.startswith(results_key(place))

    for commit in latest(root, MOST_COMMITS):
        found = of_commit(documents, commit)
        done = sum(document.run is not None and document.run.state.ended for document in found)
        ended += done
        if done and (pull := _pull(github, commit)) is not None:
            body = results(found, place)
            upsert(github, pull.number, body, is_ours)
            click.echo(f"#{pull.number}: {done} of its runs ended")
            actions.summarise(f"#{pull.number}\n\n{body}\n")
    actions.output(ended=str(ended))


def of_commit(documents: Iterable[ResourceDocument], commit: str) -> list[ResourceDocument]:
    """The experiments that were applied from a commit, with whatever serves them."""
    documents = list(documents)
    mine = [d for d in documents if d.run is not None and d.provenance.commit == commit]
    names = {document.name for document in mine}
    serving = [d for d in documents if d.deployment is not None and d.spec.get("experiment") in names]
    return [*mine, *serving]


def _pull(github: GitHub, commit: str) -> Pull | None:
    try:
        return github.merged_pull(commit)
    except PlatformRejectedError:  # GitHub does not know the commit: it was never pushed
        return None
