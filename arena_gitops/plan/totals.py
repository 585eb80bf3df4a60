"""What a plan costs as a whole: what it starts, what it stops, and what is declared before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.cost import Specified, total, training
from arena_gitops.plan.model import Action, Change, PlanCost
from arena_gitops.plan.scope import rerun_of
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_gitops.state import ObservedState


class Trained(Specified, Protocol):
    """An experiment on either side."""

    @property
    def fingerprint(self) -> Fingerprint:
        """What it trains."""
        ...


def costs_of(
    changes: Sequence[Change],
    desired: Mapping[Address, Trained],
    observed: ObservedState,
    looked_at: Iterable[Address],
) -> PlanCost:
    """Everything in credits that concerns the plan as a whole."""
    trained = [address for address in looked_at if address.kind == TRAINED]
    before, after = _Ceilings(observed.tiers), _Ceilings(observed.tiers)
    for address in trained:
        before.add(observed.resources.get(address))
        after.add(desired.get(address))
    return total(changes).model_copy(
        update={
            "running_saved": saved(changes, observed),
            "balance": observed.balance,
            "declared_before": before.known,
            "declared": after.known,
            "declared_unknown": after.unknown,
        }
    )


def saved(changes: Iterable[Change], observed: ObservedState) -> float:
    """What the runs that are stopped for good could still have cost, as far as it is known."""
    left = 0.0
    for change in changes:
        document = observed.resources.get(change.at)
        stops = change.interrupts and change.action.acts and change.action is not Action.MIGRATE
        if not stops or document is None or document.run is None:
            continue
        cost = training(document, observed.tiers)
        if cost.max is not None:
            left += max(cost.max - (cost.rate or 0.0) * document.run.spent_s / 3600, 0.0)
    return round(left, 4)


class _Ceilings:
    """A sum over many experiments, of which most have one and the same place and budget; equal work counts once."""

    def __init__(self, tiers: Mapping[str, Tier]) -> None:
        self._tiers = tiers
        self._seen: dict[tuple[Any, ...], float] = {}
        self._work: dict[tuple[str, int], float] = {}

    def add(self, resource: Trained | None) -> None:
        """Count what training it once can cost at most."""
        if resource is None:
            return
        spec = resource.spec
        budget = spec.get("budget") or {}
        place = spec.get("tier"), spec.get("num_nodes"), *map(budget.get, ("max_runtime_s", "max_credits"))
        if place not in self._seen:
            ceiling = training(resource, self._tiers).max
            self._seen[place] = inf if ceiling is None else ceiling
        work = resource.fingerprint.run, rerun_of(spec)
        self._work[work] = max(self._work.get(work, 0.0), self._seen[place])

    @property
    def known(self) -> float:
        """The sum of the known ceilings."""
        return round(sum(ceiling for ceiling in self._work.values() if ceiling < inf), 4)

    @property
    def unknown(self) -> int:
        """How many are not known."""
        return sum(ceiling == inf for ceiling in self._work.values())
