"""A deployment on its way: what is said about it, and waiting until it serves."""

from __future__ import annotations

import time

from arena_gitops.cli.imperative.agents import identity
from arena_gitops.cli.session import Session
from arena_gitops.errors import FailedStep, PartialApplyError, WaitTimeoutError
from arena_gitops.platforms.arena_api import ArenaApi
from arena_gitops.platforms.arena_rows import Deployment

LOOK_EVERY_S = 0.5
GRACE_S = 5.0
"""How long a refusal may be that of the last rollout: the server has not looked at the new one yet."""


def until_served(session: Session, api: ArenaApi, row: Deployment, *, timeout_s: float | None) -> Deployment:
    """Look until it serves what it should, and tell each change of state.

    Raises:
        PartialApplyError: It is held or has failed; what served before goes on.
        WaitTimeoutError: It takes longer than `timeout_s`; the rollout goes on.
    """
    began = time.monotonic()
    deadline = None if timeout_s is None else began + timeout_s
    before = told = line(row)
    session.say(told)
    while True:
        now = api.deployment(identity(row))
        if now.settled or (now.settled is None and now.url):
            return Deployment.model_validate(now.model_dump())
        if line(now) != told:
            told = line(now)
            session.say(told)
        new = told != before or time.monotonic() - began > GRACE_S
        if now.status in {"held", "failed"} and new:
            step = FailedStep(f"deployment/{identity(row)}", now.message or "")
            raise PartialApplyError(f"deployment {row.name} is {now.status}: {now.message}", (step,))
        if deadline is not None and time.monotonic() > deadline:
            raise WaitTimeoutError(f"after {timeout_s:g} s: {told}; the rollout goes on")
        time.sleep(LOOK_EVERY_S)


def line(row: Deployment) -> str:
    """`deployment sums: serving step_16/m1, rule best`."""
    serves = f" {row.serves}" if row.serves else ""
    about = f" ({row.message})" if row.message else ""
    return f"deployment {row.name}: {row.status}{serves}, rule {row.checkpoint}{about}"
