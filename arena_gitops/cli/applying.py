"""What `arena apply` and `arena destroy` share: show the plan, ask, make it so, wait, and tell how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from arena_gitops import app
from arena_gitops.apply.wait import Patience
from arena_gitops.cli import outcome
from arena_gitops.cli.follow import Follower
from arena_gitops.cli.plan import show, write_atomically
from arena_gitops.cli.session import Session
from arena_gitops.errors import ArenaError, InterruptedByUserError, UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope
from arena_gitops.plan.upstream import WHOLE
from arena_gitops.state import DesiredState

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

    def require(self, session: Session, ways: str) -> None:
        """Raise UsageError where consent is neither given nor can be asked for."""
        if not self.given and (session.json or session.events or not session.interactive):
            raise UsageError(f"nobody can be asked here: add {ways}")


@dataclass(slots=True)
class Job:
    """One apply: what was asked for, and the plan once there is one."""

    desired: DesiredState
    target: str
    approval: Approval
    allow: frozenset[str]
    patience: Patience
    scope: Scope = WHOLE
    approved: Plan | None = None
    """the plan file, where one was given"""
    question: str = "Apply this plan?"
    strict: bool = False
    """whether nothing at all may have been written since the plan was made"""
    document_into: Path | None = None
    planned: Plan | None = None

    def do(self, session: Session, world: app.World) -> None:
        """Plan, show, ask, apply, wait."""
        desired = self.desired
        planned = self.planned = app.plan(
            world, desired, target=self.target, allow=self.allow, scope=self.scope
        )
        if session.events:
            session.event({"type": "plan", "plan": planned.model_dump(mode="json", by_alias=True)})
        elif not session.json:
            show(session, planned, "text")
        if self.approval.plan_id is not None:
            app.require_same(planned, self.approval.plan_id, self.approved)
        if self.strict and self.approved is not None:
            app.require_same_serial(planned, self.approved)
        app.require_applyable(planned)
        if planned.has_changes or app.was_cut_off(world):
            consent = self._consent() if planned.has_changes else app.Consent.APPROVED
            with session.finishing() as stopping:
                here = replace(world, stopping=stopping, strict=self.strict)
                app.apply(here, planned, desired, consent, allow=self.allow)
        try:
            app.wait(world, planned, self.patience)
        except KeyboardInterrupt as error:
            raise InterruptedByUserError("stopped waiting; the work goes on (see `arena status`)") from error

    def _consent(self) -> app.Consent:
        if self.approval.plan_id is not None:
            return app.Consent.APPROVED
        if self.approval.yes:
            return app.Consent.UNSEEN
        if not click.confirm(self.question, err=True):
            raise ArenaError("not applied; nothing was changed")
        return app.Consent.APPROVED


def carry_out(session: Session, follower: Follower, job: Job, world: app.World) -> None:
    """Do the job, and tell what came of it however it ends."""
    problem: ArenaError | None = None
    try:
        job.do(session, world)
    except ArenaError as error:
        problem = error
    finally:
        follower.close()
    if job.planned is not None:
        _tell(session, follower, job, _document(job.planned, follower, problem))
    if problem is not None:
        raise problem


def _tell(session: Session, follower: Follower, job: Job, document: Mapping[str, Any]) -> None:
    if job.document_into is not None:
        text = json.dumps(document, ensure_ascii=False) + "\n"
        write_atomically(job.document_into, text.encode())
    if session.events:
        session.event({"type": "end", **{key: document[key] for key in ("runs", "deployments", "error")}})
        session.printed = True
    elif session.json:
        session.emit(json.dumps(document, ensure_ascii=False))
    elif follower.last is not None:
        for line in outcome.lines(follower.last):
            click.echo(line)


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
