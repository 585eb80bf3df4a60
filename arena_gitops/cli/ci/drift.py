"""`arena ci drift`: one issue that says where the platform is not as the repository says, closed when it is."""

from __future__ import annotations

import os

import click

from arena_gitops import app
from arena_gitops.cli import options
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.plan import place_of
from arena_gitops.cli.ci.sticky import open_github
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.plan.drift import drift as find_drift
from arena_gitops.plan.drift import stored_files
from arena_gitops.platforms.github import GitHub, Issue
from arena_gitops.report import notices

LABEL = "arena-drift"


@click.command()
@options.target
@options.namespace
@click.pass_context
def drift(ctx: click.Context, *, target: str | None, namespace: str) -> None:
    """Open, update or close the issue about drift.

    For a scheduled workflow. Drift is no failure: the exit code is 0, and the output `drift` says true or false.
    """
    session = ctx.ensure_object(Session)
    actions = session.using(Actions.read(os.environ))
    repository = Repository.read(namespace)
    choice = repository.choose(target)
    platform = session.using(
        connect(choice, os.environ, say=session.say, run_named=False, book=repository.desired.resources)
    )
    planned, observed = app.compare(platform, repository.desired, target=choice.name)
    unsound = platform.unsound_blobs(sorted(stored_files(observed)))
    found = find_drift(planned, repository.desired, observed, unsound)
    place = place_of(actions, repository.root, choice.name).place
    body = notices.drifted(found, place)
    click.echo(body)
    actions.summarise(body)
    actions.output(drift=str(bool(found.entries)).lower())
    if found.status == "errored" and not found.entries:
        return  # what could not be looked at is no reason to close an issue
    _keep(open_github(session, actions), notices.drift_key(place), body, found.target, bool(found.entries))


def _keep(github: GitHub, key: str, body: str, target: str, drifted: bool) -> None:
    """One open issue of ours while there is drift, and none otherwise."""
    login = github.login()
    ours = [issue for issue in github.open_issues(LABEL) if _is_ours(issue, login, key)]
    if not ours and drifted:
        github.open_issue(f"Drift on {target}", body, LABEL)
    for issue in ours:
        if not drifted:
            github.close_issue(issue.number)
        elif issue.body != body:
            github.edit_issue(issue.number, body)


def _is_ours(issue: Issue, login: str, key: str) -> bool:
    return issue.user is not None and issue.user.login == login and (issue.body or "").startswith(key)
