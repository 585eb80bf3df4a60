"""`arena apply`: plan, ask, make it so, and wait as long as was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import click
from pydantic import ValidationError

from arena_gitops import app
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.cli import options
from arena_gitops.cli.applying import Approval, Job, carry_out
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.follow import Follower
from arena_gitops.cli.holder import claim
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-y", "--yes", is_flag=True, help="Do not ask; apply whatever the plan says.")
@click.option("--expect-plan", metavar="sha256:…", help="Apply only if the plan still has this id.")
@options.target
@options.namespace
@options.allow
@options.scope
@click.option(
    "--allow-dirty", is_flag=True, help="Apply what is not committed to a target that is not local."
)
@click.option(
    "--wait",
    "until",
    type=click.Choice([u.value for u in Until]),
    default=Until.SUBMITTED.value,
    show_default=True,
    help="Return when everything is submitted, when the runs run, or when runs and rollouts are complete.",
)
@click.option(
    "--timeout", type=Duration(), help="Give up waiting after this long (90s, 15m, 2h); exit code 9."
)
@options.pace
@click.option(
    "--strict-serial",
    is_flag=True,
    help="Apply only if nothing of the stack was written since the plan was made, also what it does not touch; exit code 4.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="A check that fails holds up only what depends on it; without it nothing is changed. Exit code 10.",
)
@options.apply_output
@click.pass_obj
def apply(
    session: Session,
    *,
    file: Path | None,
    yes: bool,
    expect_plan: str | None,
    target: str | None,
    namespace: str,
    allow: frozenset[str],
    scope: Scope,
    allow_dirty: bool,
    until: str,
    timeout: float | None,
    lock_timeout: float,
    parallelism: int,
    strict_serial: bool,
    keep_going: bool,
    json_into: Path | None,
) -> None:
    """Make the platform what the repository says.

    Prints the plan and asks. --yes, a plan FILE (of `arena plan -o FILE`) or --expect-plan is consent; without
    a terminal one of them is needed.
    """
    saved = _saved(file, expect_plan, scope) if file else None
    approval = Approval(yes, saved.plan_id if saved else expect_plan)
    approval.require(session, "--yes, a plan FILE, or --expect-plan sha256:…")
    repository = Repository.read(saved.namespace if saved else namespace)
    choice = repository.choose(target)
    if saved and saved.target != choice.name:
        raise UsageError(
            f"the plan file is for target {saved.target}, not {choice.name}; add --target {saved.target}"
        )
    allowed = allow | ({app.ALLOW_DIRTY} if allow_dirty else frozenset())
    follower = Follower(session)
    world = app.World(
        session.using(
            connect(choice, os.environ, create=True, say=session.say, book=repository.desired.resources)
        ),
        journal=repository.journal(choice),
        listener=follower,
        claim=claim(os.environ, patience_s=lock_timeout),
        parallel=parallelism,
        keep_going=keep_going,
    )
    patience = Patience(Until(until), timeout)
    job = Job(
        repository.desired,
        choice.name,
        approval,
        allowed,
        patience,
        saved.scope if saved else repository.resolved(scope),
        saved,
        strict=strict_serial,
        document_into=json_into,
    )
    carry_out(session, follower, job, world)


def _saved(file: Path, expect_plan: str | None, scope: Scope) -> Plan:
    """The plan of a file, where nothing else on the command line contradicts it."""
    saved = _read_plan(file)
    if expect_plan and saved.plan_id != expect_plan:
        raise UsageError(f"{file} is plan {saved.plan_id}, not {expect_plan}")
    if scope != Scope():
        raise UsageError(
            f"{file} says itself what it is about: leave out --select, --rerun, --rerun-stale and --budget"
        )
    return saved


def _read_plan(file: Path) -> Plan:
    try:
        saved = Plan.from_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{file} is no plan of this version ({place}: {first['msg']})") from error
    if saved.mode == "offline":
        raise UsageError(f"{file} was planned offline, without the platform; plan again to apply")
    return saved
