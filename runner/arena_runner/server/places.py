"""Where a revision is served: on which base model, by which engine, and by whose processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.wire import DeploymentSpec
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import RevisionRow
from arena_runner.server.world import World

Engine = Literal["torch", "vllm"]


@dataclass(frozen=True, slots=True)
class Place:
    """One model server, wherever it runs: revisions of one place share it."""

    model: ModelRef
    engine: Engine
    tier: str | None = None
    """whose hosts serve it; None: this server's own processes"""
    chosen: bool = False
    """another engine than the server's own was asked for"""

    @property
    def key(self) -> str:
        """What it is called; the model's name alone for what is served as the server does by itself."""
        engine = f" by {self.engine}" if self.chosen else ""
        return self.model.id + engine + (f" on {self.tier}" if self.tier else "")


def chosen(world: World, spec: DeploymentSpec, *, acts: bool) -> dict[str, Any] | None:
    """What a deployment's file and its tier ask for, as revisions keep it; a policy has one engine only."""
    tier = resolve_tier(spec.tier, world.tiers)[0]
    engine = None if acts else spec.engine or tier.engine
    asked = {
        "engine": engine if engine != world.settings.model_server.engine else None,
        "tier": tier.id if tier.serving == "pull" else None,
    }
    return {name: value for name, value in asked.items() if value} or None


def place_of(world: World, revision: RevisionRow) -> Place:
    """Where it is served."""
    asked = revision.place or {}
    return Place(
        model=ModelRef.model_validate(revision.model),
        engine=asked.get("engine") or world.settings.model_server.engine,
        tier=asked.get("tier"),
        chosen="engine" in asked,
    )
