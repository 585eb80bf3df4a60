"""What this server does differently from what was asked for."""

from __future__ import annotations

from arena_gitops.spec.wire import ExperimentSpec
from arena_runner.server.services import jobs
from arena_runner.server.services.pair import RunPair
from arena_runner.server.settings import resolve_tier
from arena_runner.server.world import World


def of(pair: RunPair, world: World) -> tuple[str, ...]:
    """What this server does differently from what was asked for: the first lines of a segment's log."""
    run, spec = pair.run, ExperimentSpec.model_validate(pair.run.spec)
    notes = [resolve_tier(run.tier, world.tiers)[1]]
    if spec.num_nodes > 1:
        notes.append(f"num_nodes {spec.num_nodes} is clamped to 1: this server runs a job on one machine")
    model = jobs.model_of(pair, world)
    if model is not None and spec.model is not None and model.id != spec.model.id:
        notes.append(f"base model {spec.model.id} is exchanged for {model.id} (settings.yaml: models.map)")
    steps = jobs.effective_max_steps(run, world)
    if steps < run.max_steps:
        notes.append(f"max_steps {run.max_steps} is capped at {steps} (settings.yaml: limits.max_steps)")
    return tuple(note for note in notes if note)
