"""`arena destroy`: take what the stack has off the platform, whatever the repository says. Plans first, asks, then acts."""

from __future__ import annotations

import os
from pathlib import Path

import click

from arena_gitops import app
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.cli import options
from arena_gitops.cli.applying import Approval, Job, carry_out
from arena_gitops.cli.follow import Follower
from arena_gitops.cli.holder import claim
from arena_gitops.cli.plan import show, write_atomically
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope

QUESTION = "Destroy what this plan lists?"
QUESTION_FOR_GOOD = "Delete for good what this plan lists?"


@click.command()
@click.argument("addresses", nargs=-1, metavar="[KIND/NAME]...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; destroy whatever the plan says.")
@click.option("--expect-plan", metavar="sha256:…", help="Destroy only if the plan still has this id.")
@options.target
@options.namespace
@options.allow
@options.select
@click.option(
    "--purge",
    is_flag=True,
    help="Delete data too, for good: versions, runs, checkpoints, files nobody else uses.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write the plan here, as JSON; `arena apply FILE` carries it out.",
)
@options.pace
@options.apply_output
@click.pass_context
def destroy(
    ctx: click.Context,
    *,
    addresses: tuple[str, ...],
    yes: bool,
    expect_plan: str | None,
    target: str | None,
    namespace: str,
    allow: frozenset[str],
    select: tuple[str, ...],
    purge: bool,
    out: Path | None,
    lock_timeout: float,
    parallelism: int,
    json_into: Path | None,
) -> None:
    """Take what this stack has off the platform.

    All of it, or what is named or selected. Shows the plan and asks; --yes or --expect-plan is consent, and without a terminal one of them is needed.
    With --yes, stopping a running run needs --allow interrupt, and removing many resources --allow removals.
    What lifecycle.protect protects blocks the plan. Without --purge data stays: a resource that is declared
    again takes up its result at no cost.

    Exit codes: those of `arena apply`; with -o those of `arena plan`.
    """
    session = ctx.ensure_object(Session)
    approval = Approval(yes, expect_plan)
    if out is None:
        approval.require(session, "--yes, --expect-plan sha256:…, or -o FILE to plan only")
    elif approval.given or session.events or json_into:
        raise UsageError("-o only plans: leave out --yes, --expect-plan, --events and --json-into")
    repository = Repository.read(namespace)
    choice, book = repository.choose(target), repository.desired.resources
    wanted = Scope(select=(*addresses, *select), destroy=True, purge=purge)
    scope = repository.resolved(wanted)
    if out is not None:
        platform = session.using(connect(choice, os.environ, say=session.say, run_named=False, book=book))
        planned = app.plan(
            app.World(platform), repository.desired, target=choice.name, allow=allow, scope=scope
        )
        ctx.exit(_kept(session, planned, out))
    follower = Follower(session)
    world = app.World(
        session.using(connect(choice, os.environ, say=session.say, book=book)),
        journal=repository.journal(choice),
        listener=follower,
        claim=claim(os.environ, patience_s=lock_timeout),
        parallel=parallelism,
    )
    job = Job(
        repository.desired,
        choice.name,
        approval,
        allow,
        Patience(Until.SUBMITTED, None),
        scope,
        question=QUESTION_FOR_GOOD if purge else QUESTION,
        document_into=json_into,
    )
    carry_out(session, follower, job, world)


def _kept(session: Session, planned: Plan, out: Path) -> int:
    """Write and show a plan that is carried out later; its exit code."""
    write_atomically(out, planned.to_json())
    show(session, planned, "json" if session.json else "text")
    return app.exit_code(planned, detailed=False)
