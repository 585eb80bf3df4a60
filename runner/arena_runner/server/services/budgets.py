"""What a run may cost in time and credits, over all its segments, and what it has cost so far."""

from __future__ import annotations

from arena_gitops.spec.wire import ExperimentSpec
from arena_runner.server.services.pair import RunPair
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import RunRow
from arena_runner.server.world import World


def max_runtime(spec: ExperimentSpec) -> float | None:
    """`budget.max_runtime_s`."""
    return _number(spec, "max_runtime_s")


def max_credits(spec: ExperimentSpec) -> float | None:
    """`budget.max_credits`."""
    return _number(spec, "max_credits")


def price(run: RunRow, world: World) -> float:
    """Credits per hour of the run's tier, for all its nodes."""
    nodes = ExperimentSpec.model_validate(run.spec).num_nodes
    return resolve_tier(run.tier, world.tiers)[0].credits_per_node_hour * nodes


def spent_s(pair: RunPair, now: float) -> float:
    """Worker time so far."""
    return pair.state.spent_s + _running_s(pair, now)


def spent_credits(pair: RunPair, now: float) -> float:
    """Credits so far."""
    return pair.state.spent_credits + _running_s(pair, now) / 3600 * (pair.state.rate or 0.0)


def left_s(pair: RunPair, now: float) -> float | None:
    """How long the segment at work may still take; None: as long as it likes."""
    left = []
    if pair.run.max_runtime_s is not None:
        left.append(pair.run.max_runtime_s - spent_s(pair, now))
    if pair.run.max_credits is not None and pair.state.rate:
        left.append((pair.run.max_credits - spent_credits(pair, now)) / pair.state.rate * 3600)
    return min(left) if left else None


def exceeded(pair: RunPair, now: float) -> str | None:
    """Which part of the budget is used up, in words; None while there is some left."""
    longest, dearest = pair.run.max_runtime_s, pair.run.max_credits
    if longest is not None and spent_s(pair, now) >= longest:
        return f"reached its budget of {longest:g} s; raise it to continue"
    if dearest is not None and 0 < spent_credits(pair, now) >= dearest:
        return f"reached its budget of {dearest:g} credits; raise it to continue"
    return None


def settle(pair: RunPair, now: float) -> None:
    """The segment at work ends now: what it cost is added up."""
    pair.state.spent_s, pair.state.spent_credits = spent_s(pair, now), spent_credits(pair, now)
    pair.state.claimed = pair.state.rate = None


def _running_s(pair: RunPair, now: float) -> float:
    return 0.0 if pair.state.claimed is None else max(0.0, now - pair.state.claimed)


def _number(spec: ExperimentSpec, name: str) -> float | None:
    value = spec.budget.get(name)
    return float(value) if isinstance(value, int | float) else None
