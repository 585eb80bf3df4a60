"""`arena apply`: plan, ask, make it so, and wait as long as was asked for."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from arena_gitops import app
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.cli import options, outcome
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.follow import Follower
from arena_gitops.cli.holder import claim
from arena_gitops.cli.plan import show
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import connect
from arena_gitops.errors import ArenaError, InterruptedByUserError, UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.upstream import WHOLE

APPLY_FORMAT = "1.0"


@dataclass(frozen=True, slots=True)
class Approval:
    """What somebody has agreed to before the command began."""

    yes: bool
    plan_id: str | None
    """of a plan file or of `--expect-plan`"""

    @property
    def given(self) -> bool:
        """Whether nobody needs to be asked."""
        return self.yes or self.plan_id is not None


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
@options.json
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
) -> None:
    """Make the platform what the repository says.

    Prints the plan and asks. --yes, a plan FILE (of `arena plan -o FILE`) or --expect-plan is consent; without
    a terminal one of them is needed.
    """
    saved = _read_plan(file) if file else None
    if saved and expect_plan and saved.plan_id != expect_plan:
        raise UsageError(f"{file} is plan {saved.plan_id}, not {expect_plan}")
    if saved and scope != Scope():
        raise UsageError(
            f"{file} says itself what it is about: leave out --select, --rerun, --rerun-stale and --budget"
        )
    approval = Approval(yes, saved.plan_id if saved else expect_plan)
    if not approval.given and (session.json or not session.interactive):
        raise UsageError("nobody can be asked here: add --yes, a plan FILE, or --expect-plan sha256:…")
    repository = Repository.read(saved.namespace if saved else namespace)
    choice = repository.choose(target)
    if saved and saved.target != choice.name:
        raise UsageError(
            f"the plan file is for target {saved.target}, not {choice.name}; add --target {saved.target}"
        )
    allowed = allow | ({app.ALLOW_DIRTY} if allow_dirty else frozenset())
    follower = Follower(session)
    world = app.World(
        session.using(connect(choice, os.environ, create=True, say=session.say)),
        journal=repository.journal(choice),
        listener=follower,
        claim=claim(os.environ, patience_s=lock_timeout),
        parallel=parallelism,
    )
    patience = Patience(Until(until), timeout)
    job = _Job(
        repository,
        choice.name,
        approval,
        allowed,
        patience,
        saved.scope if saved else repository.resolved(scope),
        saved,
    )
    _report(session, follower, job, world)


@dataclass(slots=True)
class _Job:
    """One apply: what was asked for, and the plan once there is one."""

    repository: Repository
    target: str
    approval: Approval
    allow: frozenset[str]
    patience: Patience
    scope: Scope = WHOLE
    approved: Plan | None = None
    """the plan file, where one was given"""
    planned: Plan | None = None


def _report(session: Session, follower: Follower, job: _Job, world: app.World) -> None:
    """Do the job, and tell what came of it however it ends."""
    problem: ArenaError | None = None
    try:
        _do(session, job, world)
    except ArenaError as error:
        problem = error
    finally:
        follower.close()
    if session.json and job.planned is not None:
        session.emit(json.dumps(_document(job.planned, follower, problem), ensure_ascii=False))
    elif follower.last is not None:
        for line in outcome.lines(follower.last):
            click.echo(line)
    if problem is not None:
        raise problem


def _do(session: Session, job: _Job, world: app.World) -> None:
    desired = job.repository.desired
    planned = job.planned = app.plan(world, desired, target=job.target, allow=job.allow, scope=job.scope)
    if not session.json:
        show(session, planned, "text")
    if job.approval.plan_id is not None:
        app.require_same(planned, job.approval.plan_id, job.approved)
    app.require_applyable(planned)
    if planned.has_changes or app.was_cut_off(world):
        consent = _consent(job.approval) if planned.has_changes else app.Consent.APPROVED
        with session.finishing() as stopping:
            app.apply(replace(world, stopping=stopping), planned, desired, consent, allow=job.allow)
    try:
        app.wait(world, planned, job.patience)
    except KeyboardInterrupt as error:
        raise InterruptedByUserError("stopped waiting; the work goes on (see `arena status`)") from error


def _consent(approval: Approval) -> app.Consent:
    if approval.plan_id is not None:
        return app.Consent.APPROVED
    if approval.yes:
        return app.Consent.UNSEEN
    if not click.confirm("Apply this plan?", err=True):
        raise ArenaError("not applied; nothing was changed")
    return app.Consent.APPROVED


def _read_plan(file: Path) -> Plan:
    try:
        saved = Plan.from_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{file} is no plan of this version ({place}: {first['msg']})") from error
    if saved.mode != "online":
        raise UsageError(f"{file} was planned offline, without the platform; plan again to apply")
    return saved


def _document(planned: Plan, follower: Follower, problem: ArenaError | None) -> dict[str, Any]:
    last = follower.last
    return {
        "format_version": APPLY_FORMAT,
        "kind": "arena.apply",
        "plan": planned.model_dump(mode="json", by_alias=True),
        "steps": [asdict(step) for step in follower.steps],
        "runs": [run.model_dump(mode="json") for run in last.runs] if last else [],
        "deployments": [{"name": n, **d.model_dump(mode="json")} for n, d in last.deployments]
        if last
        else [],
        "error": {"exit_code": problem.exit_code, "message": str(problem)} if problem else None,
    }
