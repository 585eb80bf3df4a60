"""How a stored deployment moves its traffic and how much it takes, with their defaults. What users write is in `kinds`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from arena_gitops.spec.resource import Frozen

CANARY_PERCENT = 10


class Rollout(Frozen):
    """A stored deployment's strategy with its defaults; `spec.kinds.deployment.Strategy` says what each means."""

    type: Literal["recreate", "blue_green", "canary"] = "blue_green"
    percent: int | None = None
    watch: float = 300.0
    """seconds"""
    max_error_rate: float = 0.05
    min_requests: int = 20
    max_first_token: float | None = None
    deadline: float = 900.0
    """seconds"""
    auto_rollback: bool = True

    @property
    def share(self) -> int:
        """Percent of the sessions that a canary answers."""
        return self.percent or CANARY_PERCENT


class Capacity(Frozen):
    """How much is asked of a deployment at a time; None: the server's own."""

    concurrent: int | None = None
    queue: int | None = None


class Traffic(Frozen):
    """The part of a stored deployment that says how it is asked."""

    strategy: dict[str, JsonValue] = Field(default_factory=dict)
    limits: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def rollout(self) -> Rollout:
        """How traffic moves."""
        return Rollout.model_validate(self.strategy)

    @property
    def capacity(self) -> Capacity:
        """How much is asked of it at a time."""
        return Capacity.model_validate(self.limits)
