"""`arena ci preview`: a pull request's own namespace, for as long as it is open and has the label.

Putting the label on is the consent. What a pull request may not do is set its own limits: policy and
`preview.max_steps` are those of the commit it is to join.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from arena_gitops import app
from arena_gitops.cli import options
from arena_gitops.cli.ci.actions import Actions, PullEvent
from arena_gitops.cli.ci.carrying import apply_planned
from arena_gitops.cli.ci.plan import place_of
from arena_gitops.cli.ci.sticky import open_github, upsert
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import Choice, connect
from arena_gitops.errors import BlockedError, UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.safety import ALLOW_INTERRUPT, ALLOW_REMOVALS
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.upstream import WHOLE
from arena_gitops.repo.git import find_root
from arena_gitops.repo.load import limits_at
from arena_gitops.report import github as report_github
from arena_gitops.report import notices
from arena_gitops.report.github import Place

LABEL = "arena-preview"
ALLOW = frozenset({ALLOW_REMOVALS, ALLOW_INTERRUPT})
"""It may stop and remove what is its own."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One job of a workflow, for one pull request."""

    session: Session
    actions: Actions
    pull: PullEvent
    repository: Repository
    choice: Choice

    def plan(self, scope: Scope = WHOLE) -> Plan:
        """What would be done in the namespace."""
        platform = self.session.using(connect(self.choice, os.environ, create=True, say=self.session.say))
        desired = self.repository.desired
        made = app.plan(app.World(platform), desired, target=self.choice.name, allow=ALLOW, scope=scope)
        self.actions.output(plan_id=made.plan_id, namespace=made.namespace)
        return made

    def apply(self, made: Plan) -> None:
        """Do it."""
        if made.has_changes:
            apply_planned(self.session, self.actions, self.repository, self.choice, made, allow=ALLOW)

    @property
    def place(self) -> Place:
        """Where this is, for what is shown."""
        return place_of(self.actions, self.repository.root, self.choice.name).place

    def tell(self, body: str) -> None:
        """The preview's one comment."""
        if self.actions.token is not None:
            key = notices.preview_key(self.place)
            github = open_github(self.session, self.actions)
            upsert(github, self.pull.number, body, lambda old: old.startswith(key))


@click.command()
@options.target
@click.option(
    "--label", default=LABEL, show_default=True, help="The label that a pull request with a preview has."
)
@click.pass_obj
def preview(session: Session, *, target: str | None, label: str) -> None:
    """Apply a labelled pull request to a namespace of its own, pr-NUMBER; collect that when it is over.

    For pull requests of this repository only, on the events labeled, unlabeled, synchronize, reopened and closed.
    Runs are cut to `preview.max_steps`; what is served answers as pr-NUMBER--NAME. Exit codes: those of `arena
    apply`; 3 for a fork.
    """
    actions = session.using(Actions.read(os.environ))
    pull = actions.pull
    if pull is None:
        raise UsageError("this job has no pull request: expected the event pull_request")
    if pull.fork:
        raise BlockedError("previews are for pull requests of this repository: a fork gets a plan only")
    namespace = f"pr-{pull.number}"
    if pull.closed or label not in pull.labels:
        _collect(session, actions, pull, namespace, target)
        return
    limits = limits_at(find_root(Path.cwd()), pull.base)
    repository = Repository.read(namespace, limits)
    job = _Job(session, actions, pull, repository, repository.choose(target))
    made = job.plan()
    actions.summarise(report_github.summary(made, job.place))
    app.require_applyable(made)
    job.apply(made)
    job.tell(notices.previewed(made, job.place))


def _collect(session: Session, actions: Actions, pull: PullEvent, namespace: str, target: str | None) -> None:
    """Remove all of it, whatever the repository says by now.

    What was trained stays where the pull request was merged: `main` goes on with it instead of training again.
    """
    repository = Repository.emptied(namespace)
    job = _Job(session, actions, pull, repository, repository.choose(target))
    made = job.plan(Scope(destroy=True, purge=pull.closed and not pull.merged))
    if not made.has_changes:
        click.echo(f"There is nothing in namespace {namespace}.")
        return
    job.apply(made)
    body = notices.collected(made, job.place)
    actions.summarise(body)
    job.tell(body)
