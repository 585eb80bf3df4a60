"""The lease of an apply: one at a time per stack and namespace, for as long as it says that it is alive.

A lease ends by being released, or by not being renewed for its TTL: a killed apply locks nobody out for long.
Every lease of a stack has a higher *fence* than the one before; the platform refuses a write that carries an
older one, so that what a dead apply had on the wire cannot arrive late.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import Owner

TTL_S = 60.0
HEARTBEAT_S = 15.0
LONGEST_TTL_S = 600.0
FENCE = "Arena-Fence"
"""Header of a PUT or DELETE: the fence of the lease under which it is made."""

Words = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LeaseRequest(Frozen):
    """Somebody wants to change a stack, alone."""

    owner: Owner
    holder: Words
    """who, in words that tell others whom to ask: `ann@laptop`"""
    operation: Words = "apply"
    run_url: str | None = Field(default=None, max_length=2000)
    """the workflow run behind it"""
    ttl_s: float = Field(default=TTL_S, gt=0, le=LONGEST_TTL_S)


class Lease(Frozen):
    """Who may change a stack now. Times are the platform's."""

    id: str
    owner: Owner
    holder: str
    operation: str
    run_url: str | None = None
    fence: int
    ttl_s: float
    created: float
    expires: float

    def told(self, now: float) -> str:
        """Who holds it, since when, in words."""
        link = f" ({self.run_url})" if self.run_url else ""
        return f"{self.holder} holds it for {self.operation}{link} since {_ago(now - self.created)}"


class Heartbeat(Frozen):
    """The holder lives; only the fence that was given is believed."""

    fence: int


def _ago(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
