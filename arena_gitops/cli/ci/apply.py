"""`arena ci apply`: apply after a merge exactly what was approved by merging, or nothing.

The pull request's comment holds the id of the plan that people saw. A merge commit, a squash and a rebase give
the same plan, so the plan is what the approval is bound to and the commit is only how it is found. An apply
that was cut short leaves a rest, whose changes are each as approved: that goes on without asking again.
"""

from __future__ import annotations

import os

import click

from arena_gitops import app
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.cli import options
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.approval import Accept
from arena_gitops.cli.ci.carrying import Pace, apply_planned
from arena_gitops.cli.ci.plan import place_of
from arena_gitops.cli.ci.telling import Teller
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import StaleError, UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.report import github as report_github


@click.command()
@click.option(
    "--expect-approved-plan", is_flag=True, help="Apply only the plan that the merged pull request showed."
)
@click.option("--expect-plan", metavar="sha256:…", help="Apply only this plan (a re-approval by hand).")
@click.option(
    "--accept-plan-change",
    "accept",
    type=click.Choice([accept.value for accept in Accept if accept is not Accept.NOTHING]),
    help="Also apply a plan that is not the approved one any more: only where what differs starts no training, "
    "costs nothing, stops and removes nothing, or whatever it is.",
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
@options.pace
@click.pass_context
def apply(
    ctx: click.Context,
    *,
    expect_approved_plan: bool,
    expect_plan: str | None,
    accept: str | None,
    target: str | None,
    namespace: str,
    until: str,
    timeout: float | None,
    lock_timeout: float,
    parallelism: int,
) -> None:
    """Apply the plan that was approved by merging.

    Exit codes: those of `arena apply`; 3 when nobody approved a plan, 4 when it is not the approved one any
    more (the pull request gets a comment with the difference).
    """
    if expect_approved_plan == bool(expect_plan):
        raise UsageError("say what was approved: either --expect-approved-plan or --expect-plan sha256:…")
    if accept is not None and not expect_approved_plan:
        raise UsageError("--accept-plan-change is about --expect-approved-plan; add that")
    session = ctx.ensure_object(Session)
    actions = session.using(Actions.read(os.environ))
    repository = Repository.read(namespace)
    choice = repository.choose(target)
    platform = session.using(
        connect(choice, os.environ, create=True, say=session.say, book=repository.desired.resources)
    )

    def look() -> Plan:
        return app.plan(app.World(platform), repository.desired, target=choice.name)

    planned = look()
    place = place_of(actions, repository.root, choice.name).place
    actions.output(plan_id=planned.plan_id)
    teller: Teller | None
    if expect_approved_plan:
        teller = Teller.of_approved(session, actions, place)
        notice = teller.require_approved(planned, Accept(accept or Accept.NOTHING))
    else:
        teller = Teller.if_any(session, actions, place)
        notice = teller.by_hand(planned) if teller else None
    pace = Pace(Patience(Until(until), timeout), lock_timeout, parallelism)
    try:
        if expect_plan and planned.has_changes:
            app.require_same(planned, expect_plan)
        if planned.has_changes:
            apply_planned(session, actions, repository, choice, planned, pace=pace)
        else:
            click.echo("Nothing is left to do.")
    except StaleError:
        if teller is not None:
            teller.moved(look())
        raise
    actions.summarise(f"{report_github.summary(planned, place)}\n**Applied.**\n")
    if teller is not None:
        teller.applied(planned, notice, by_hand=not expect_approved_plan)
