"""Equal work that one plan begins under several names is one run: its ceiling counts once.

The dearest of them carries it, with the loosest of their budgets, since that is what the run is given; the others
name it. Where an equal run exists already, each keeps its own ceiling: whether it may be lengthened for them is not
known here, and a ceiling is never too low.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.plan.cost import cost_of
from arena_gitops.plan.estimate import History
from arena_gitops.plan.model import Action, Change, Cost
from arena_gitops.plan.scope import rerun_of
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

BEGINS = frozenset({Action.CREATE, Action.NEW_VERSION})
STEPS = "manifest.training.max_steps"


def paid_once(
    changes: Iterable[Change], desired: DesiredState, observed: ObservedState, history: History
) -> list[Change]:
    """The same changes, of which one pays for each run that several of them begin."""
    changes = list(changes)
    paid: dict[Address, Cost | None] = {}
    for alike in _begun_together(changes, desired, observed):
        first = min(alike, key=_dearest_first)
        together = _together(desired.resources[first.at], [desired.resources[change.at] for change in alike])
        paid |= dict.fromkeys((change.at for change in alike), _shares(first))
        paid[first.at] = cost_of(first.action, together, observed.tiers, history)
    return [c.model_copy(update={"cost": paid[c.at]}) if c.at in paid else c for c in changes]


def _begun_together(
    changes: Iterable[Change], desired: DesiredState, observed: ObservedState
) -> Iterable[list[Change]]:
    begun: dict[tuple[str, int], list[Change]] = defaultdict(list)
    for change in changes:
        if change.action in BEGINS and change.at.kind == TRAINED:
            resource = desired.resources[change.at]
            begun[resource.fingerprint.run, rerun_of(resource.spec)].append(change)
    return [alike for run, alike in begun.items() if len(alike) > 1 and run not in observed.runs]


def _dearest_first(change: Change) -> tuple[float, float, str]:
    """What has no known price may be the dearest of all."""
    rate, most = (change.cost.rate, change.cost.max) if change.cost is not None else (None, None)
    return (
        float("-inf") if rate is None else -rate,
        float("-inf") if most is None else -most,
        change.address,
    )


def _together(first: DesiredResource, alike: Sequence[DesiredResource]) -> DesiredResource:
    """The first one, with the loosest budget and the most steps that any of them asks for."""
    budget = {key: _loosest(alike, f"budget.{key}") for key in ("max_runtime_s", "max_credits")}
    manifest: dict[str, Any] = dict(first.spec["manifest"])
    steps = _loosest(alike, STEPS)
    if steps is not None:
        manifest["training"] = {**manifest["training"], "max_steps": steps}
    return replace(first, spec={**first.spec, "budget": budget, "manifest": manifest})


def _loosest(alike: Sequence[DesiredResource], path: str) -> Any:
    values = [spec_at(resource.spec, path) for resource in alike]
    return None if None in values else max(values)


def _shares(first: Change) -> Cost:
    return Cost(rate=0.0, max=0.0, basis=f"shares the run of {first.address}", est=0.0)
