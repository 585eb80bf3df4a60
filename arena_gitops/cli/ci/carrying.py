"""An apply within a job: whatever it ends with is said on the job's page, too."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from arena_gitops import app
from arena_gitops.apply.engine import PARALLEL
from arena_gitops.apply.wait import Patience
from arena_gitops.cli.applying import Approval, Job, carry_out
from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.follow import Follower
from arena_gitops.cli.holder import claim
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import Repository
from arena_gitops.cli.target import Choice, connect
from arena_gitops.errors import ArenaError
from arena_gitops.plan.model import Plan
from arena_gitops.report.commands import Annotation
from arena_gitops.report.untrusted import fenced

LOCK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait for whom, and how much to do at a time."""

    patience: Patience = field(default_factory=Patience)
    lock_timeout: float = LOCK_TIMEOUT_S
    parallelism: int = PARALLEL


def apply_planned(
    session: Session,
    actions: Actions,
    repository: Repository,
    choice: Choice,
    planned: Plan,
    *,
    allow: frozenset[str] = frozenset(),
    pace: Pace | None = None,
) -> None:
    """Apply this plan and no other; an error is told on the job's page before it ends the command."""
    pace = pace or Pace()
    follower = Follower(session)
    world = app.World(
        session.using(connect(choice, os.environ, create=True, say=session.say)),
        journal=repository.journal(choice),
        listener=follower,
        claim=claim(os.environ, patience_s=pace.lock_timeout),
        parallel=pace.parallelism,
    )
    approval = Approval(yes=False, plan_id=planned.plan_id)
    job = Job(repository.desired, planned.target, approval, allow, pace.patience, planned.scope)
    try:
        carry_out(session, follower, job, world)
    except ArenaError as error:
        actions.annotate([Annotation("error", "apply", str(error)).render()])
        actions.summarise(f"### ❌ Not (wholly) applied\n\n{fenced(str(error).splitlines())}\n")
        raise
