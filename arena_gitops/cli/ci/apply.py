"""`arena ci apply`: apply after a merge exactly what was approved by merging, or nothing.

The pull request's comment holds the id of the plan that people saw. A merge commit, a squash and a rebase give
the same plan, so the plan is what the approval is bound to and the commit is only how it is found. An apply
that was cut short leaves a rest, whose changes are each as approved: that goes on without asking again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import click

from arena_gitops import app
from arena_gitops.apply.wait import Until
from arena_gitops.cli import options
from arena_gitops.cli.apply import apply as arena_apply
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.plan import place_of
from arena_gitops.cli.ci.sticky import is_about, last_of_ours, open_github, upsert
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import ArenaError, BlockedError, StaleError, UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.platforms.github import Comment, GitHub
from arena_gitops.report import github as report_github
from arena_gitops.report.commands import Annotation
from arena_gitops.report.github import Place
from arena_gitops.report.marker import Marker, signatures
from arena_gitops.report.untrusted import fenced


@dataclass(frozen=True, slots=True)
class _Approval:
    """The plan that was merged, and where it was shown."""

    github: GitHub
    number: int
    comment: Comment
    marker: Marker


@click.command()
@click.option(
    "--expect-approved-plan", is_flag=True, help="Apply only the plan that the merged pull request showed."
)
@click.option("--expect-plan", metavar="sha256:…", help="Apply only this plan (a re-approval by hand).")
@click.option(
    "--accept-plan-change",
    type=click.Choice(["no-cost", "any"]),
    help="Go on although the plan is not the approved one any more: where what is new costs nothing and ends nothing, "
    "or in any case.",
)
@options.target
@options.namespace
@click.option(
    "--wait",
    "until",
    type=click.Choice([u.value for u in Until]),
    default=Until.SUBMITTED.value,
    show_default=True,
    help="Return when everything is submitted, when the runs run, or when everything is complete.",
)
@click.option("--timeout", type=Duration(), help="Give up waiting after this long (90s, 15m, 2h).")
@click.pass_context
def apply(
    ctx: click.Context,
    *,
    expect_approved_plan: bool,
    expect_plan: str | None,
    accept_plan_change: Literal["no-cost", "any"] | None,
    target: str | None,
    namespace: str,
    until: str,
    timeout: float | None,
) -> None:
    """Apply the plan that was approved by merging.

    Exit codes: those of `arena apply`; 3 when nobody approved a plan, 4 when it is not the approved one any
    more (the pull request gets a comment with the difference).
    """
    if expect_approved_plan == bool(expect_plan):
        raise UsageError("say what was approved: either --expect-approved-plan or --expect-plan sha256:…")
    session = ctx.ensure_object(Session)
    actions = session.using(Actions.read(os.environ))
    repository = Repository.read(namespace)
    choice = repository.choose(target)
    platform = session.using(
        connect(choice, os.environ, create=True, say=session.say, book=repository.desired.resources)
    )
    planned = app.plan(app.World(platform), repository.desired, target=choice.name)
    place = place_of(actions, repository.root, choice.name).place
    actions.output(plan_id=planned.plan_id)
    approval = None
    if expect_approved_plan:
        approval = _approval(open_github(session, actions), actions, place)
        _require_approved(actions, approval, planned, place, accept_plan_change)
    elif planned.has_changes:
        app.require_same(planned, str(expect_plan))
    if planned.has_changes:
        parameters = {"target": target, "namespace": namespace, "until": until, "timeout": timeout}
        _invoke(ctx, actions, {**parameters, "expect_plan": planned.plan_id, "allow": frozenset()})
    else:
        click.echo("Nothing is left to do.")
    actions.summarise(f"{report_github.summary(planned, place)}\n**Applied.**\n")
    if approval is not None:
        _say_applied(actions, approval)


def _invoke(ctx: click.Context, actions: Actions, parameters: dict[str, object]) -> None:
    try:
        ctx.invoke(arena_apply, **parameters)
    except ArenaError as error:
        actions.annotate([Annotation("error", "apply", str(error)).render()])
        actions.summarise(f"### ❌ Not (wholly) applied\n\n{fenced(str(error).splitlines())}\n")
        raise


def _approval(github: GitHub, actions: Actions, place: Place) -> _Approval:
    pull = github.merged_pull(actions.sha)
    if pull is None:
        raise BlockedError(
            f"commit {actions.sha[:12]} came from no merged pull request, so nobody approved a plan; "
            "look at `arena plan` and run the apply workflow by hand with its id"
        )
    found = last_of_ours(github, pull.number, lambda body: is_about(Marker.find(body), place))
    marker = Marker.find(found.body or "") if found else None
    if found is None or marker is None or marker.plan_id is None:
        raise BlockedError(
            f"pull request #{pull.number} shows no plan for {place.target}, so nobody approved one; "
            "look at `arena plan` and run the apply workflow by hand with its id"
        )
    if marker.head != pull.head.sha:
        raise StaleError(
            f"the plan in pull request #{pull.number} was made for commit {marker.head[:12]}, merged was "
            f"{pull.head.sha[:12]}; run the apply workflow by hand with the id of the plan as it is now"
        )
    return _Approval(github, pull.number, found, marker)


def _require_approved(
    actions: Actions,
    approval: _Approval,
    planned: Plan,
    place: Place,
    accept: Literal["no-cost", "any"] | None,
) -> None:
    if not planned.has_changes or planned.plan_id == approval.marker.plan_id or _is_rest(approval, planned):
        return
    if accept == "any" or (accept == "no-cost" and _is_harmless(approval, planned)):
        for line in report_github.differences(approval.marker, planned):
            click.echo(line)
        click.echo(f"Not the approved plan; applied all the same (--accept-plan-change={accept}).")
        return
    body = report_github.mismatch(approval.marker, planned, place)
    key = report_github.mismatch_key(place)
    actions.summarise(body)
    for line in report_github.differences(approval.marker, planned):
        click.echo(line)
    upsert(approval.github, approval.number, body, lambda old: old.startswith(key))
    app.require_same(planned, str(approval.marker.plan_id))


def _is_rest(approval: _Approval, planned: Plan) -> bool:
    """Whether everything that is left to do was approved just so, and nothing forbids it now."""
    approved = approval.marker.changes
    return (
        approved is not None
        and planned.applyable
        and all(approved.get(address) == signature for address, signature in signatures(planned).items())
    )


def _is_harmless(approval: _Approval, planned: Plan) -> bool:
    """Whether what was not approved just so costs nothing, stops nothing and takes nothing away."""
    approved = approval.marker.changes
    if approved is None or not planned.applyable:
        return False
    told = signatures(planned)
    fresh = [c for c in planned.changes if c.address in told and approved.get(c.address) != told[c.address]]
    return not any(
        c.interrupts or c.action.removes or c.action.spends or (c.cost and (c.cost.max or c.cost.rate))
        for c in fresh
    )


def _say_applied(actions: Actions, approval: _Approval) -> None:
    """What is done is done: a comment that cannot be written is a warning, not a failed apply."""
    body = report_github.applied(approval.comment.body or "", actions.run_url)
    try:
        if body != approval.comment.body:
            approval.github.edit(approval.comment.id, body)
    except ArenaError as error:
        message = f"applied, but the pull request could not be told: {error}"
        actions.annotate([Annotation("warning", "comment", message).render()])
