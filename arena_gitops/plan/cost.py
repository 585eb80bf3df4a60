"""Ceilings in credits: tier price x nodes x longest run; estimates only from what such runs have taken.

What is not known is said to be unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.plan.estimate import Estimate, History
from arena_gitops.plan.model import Action, Change, Cost, PlanCost
from arena_gitops.spec.wire import Tier
from arena_gitops.state import DesiredResource

NO_HISTORY = History({})


class Specified(Protocol):
    """A resource as the repository wants it, or as the platform has it."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """As it is stored."""
        ...


def cost_of(
    action: Action,
    resource: DesiredResource,
    tiers: Mapping[str, Tier],
    history: History = NO_HISTORY,
    *,
    done: int = 0,
) -> Cost | None:
    """What one change can cost; None where the question makes no sense. `done` steps need no training."""
    kind = resource.address.kind
    if kind == TRAINED and action is Action.REUSE:
        return Cost(rate=0.0, max=0.0, basis="an equal run exists")
    if kind == TRAINED and action.spends:
        return _estimated(training(resource, tiers), resource, _known(resource, tiers, history, done))
    if kind == "deployment" and action is Action.CREATE:
        return _serving(resource, tiers)
    return None


def total(changes: Iterable[Change]) -> PlanCost:
    """Sum of the known ceilings and rates, and how many are unknown."""
    ceilings = rates = 0.0
    unknown = 0
    estimates: list[float | None] = []
    for change in changes:
        if change.cost is None or not change.action.acts:
            continue
        serving = change.at.kind == "deployment"
        if not serving and change.action.spends:
            estimates.append(change.cost.est)
        known = change.cost.rate if serving else change.cost.max
        if known is None:
            unknown += 1
        elif serving:
            rates += known
        else:
            ceilings += known
    known_all = estimates and None not in estimates
    return PlanCost(
        max_new=round(ceilings, 4),
        rate_per_hour=round(rates, 4),
        unknown=unknown,
        est_new=round(sum(found for found in estimates if found is not None), 4) if known_all else None,
    )


def tier_of(resource: Specified, tiers: Mapping[str, Tier]) -> Tier | None:
    """The tier a resource names; the platform's first one when it names none."""
    name = resource.spec.get("tier")
    return next(iter(tiers.values()), None) if name is None else tiers.get(str(name))


def training(resource: Specified, tiers: Mapping[str, Tier]) -> Cost:
    """The ceiling of training it once from the beginning."""
    tier = tier_of(resource, tiers)
    max_credits = _positive(resource, "budget.max_credits")
    if tier is None:
        unknown = _no_price(resource)
        return Cost(
            max=max_credits, basis=f"max_credits {max_credits:g}; {unknown}" if max_credits else unknown
        )
    nodes = resource.spec.get("num_nodes") or 1
    rate = tier.credits_per_node_hour * nodes
    basis = f"{tier.id} {tier.credits_per_node_hour:g}/h" + (f" x {nodes} nodes" if nodes > 1 else "")
    if rate == 0:
        return Cost(rate=0.0, max=0.0, basis=basis)
    seconds = _positive(resource, "budget.max_runtime_s")
    if seconds is None:
        longest = "no max_runtime"
        return Cost(rate=rate, max=max_credits, basis=f"{basis}, {_capped(longest, max_credits)}")
    ceiling = round(rate * seconds / 3600, 4)
    longest = f"max_runtime {duration(seconds)}"
    if max_credits is not None and max_credits < ceiling:
        return Cost(rate=rate, max=max_credits, basis=f"{basis}, {_capped(longest, max_credits)}")
    return Cost(rate=rate, max=ceiling, basis=f"{basis}, {longest}")


def _known(
    resource: DesiredResource, tiers: Mapping[str, Tier], history: History, done: int
) -> Estimate | None:
    steps = spec_at(resource.spec, "manifest.training.max_steps")
    if not isinstance(steps, int) or spec_at(resource.spec, "manifest.training.num_epochs") is not None:
        return None
    tier = tier_of(resource, tiers)
    processors = max(1, tier.num_cpus // (tier.slots or 1)) if tier else 1
    return history.estimate(resource.spec, steps - done, processors)


def _estimated(cost: Cost, resource: DesiredResource, found: Estimate | None) -> Cost:
    """With what it will probably take, never more than it can take."""
    if found is None:
        return cost
    limit = _positive(resource, "budget.max_runtime_s")
    seconds = found.seconds if limit is None else min(found.seconds, limit)
    price = None if cost.rate is None or found.least else round(cost.rate * seconds / 3600, 4)
    if price is not None and cost.max is not None:
        price = min(price, cost.max)
    told = {
        "est": price,
        "est_seconds": round(seconds, 1),
        "est_basis": found.basis,
        "est_least": found.least,
    }
    return cost.model_copy(update=told)


def _serving(resource: DesiredResource, tiers: Mapping[str, Tier]) -> Cost:
    tier = tier_of(resource, tiers)
    if tier is None:
        return Cost(basis=_no_price(resource))
    rate = tier.credits_per_node_hour
    return Cost(rate=rate, basis=f"{tier.id} {rate:g}/h while it serves")


def _no_price(resource: Specified) -> str:
    name = resource.spec.get("tier")
    return "no tier named" if name is None else f"no price known for tier {name}"


def _capped(longest: str, max_credits: float | None) -> str:
    return longest if max_credits is None else f"{longest}, max_credits {max_credits:g}"


def _positive(resource: Specified, path: str) -> float | None:
    value = spec_at(resource.spec, path)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, without zero parts."""
    whole = round(seconds)
    parts = [(whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
