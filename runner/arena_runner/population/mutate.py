"""One mutation: a hyperparameter of the parent, grown or shrunk, within the range its author gave.

The step always starts from the parent's *own* value. Policies of classic algorithms may also have their network
mutated; then only its kind is decided here, and `policies.mutate` does it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from arena_runner.population.member import Hyperparameters
from arena_runner.seeds import rng


class Bounds(Protocol):
    """What a manifest says about one mutable hyperparameter."""

    @property
    def min(self) -> float:
        """Lowest value allowed."""

    @property
    def max(self) -> float:
        """Highest value allowed."""

    @property
    def grow_factor(self) -> float:
        """Factor of a growing mutation, above 1."""

    @property
    def shrink_factor(self) -> float:
        """Factor of a shrinking mutation, below 1."""


NETWORK = ("arch_mut", "params_mut", "act_mut")
"""mutations of a member's network"""


@dataclass(frozen=True, slots=True)
class Odds:
    """Weights of the outcomes; they need not sum to one."""

    no_mut: float
    rl_hp_mut: float
    arch_mut: float = 0.0
    params_mut: float = 0.0
    act_mut: float = 0.0


@dataclass(frozen=True, slots=True)
class Mutation:
    """What happened to one hyperparameter, or (without values) what is to happen to the network."""

    name: str
    old: int | float | None = None
    new: int | float | None = None


def mutate(
    parent: Hyperparameters,
    ranges: Mapping[str, Bounds],
    odds: Odds,
    *,
    seed: int,
    generation: int,
    place: int,
) -> Mutation | None:
    """Draw the mutation of a copy of `parent` for `place`, or None when it passes unchanged."""
    dice = rng(seed, "mutation", generation, place)
    outcomes = {"no_mut": odds.no_mut, "rl_hp_mut": odds.rl_hp_mut if ranges else 0.0}
    outcomes |= {kind: getattr(odds, kind) for kind in NETWORK}
    total = sum(outcomes.values())
    if total <= odds.no_mut:
        return None
    kind = _drawn(outcomes, dice.random() * total)
    if kind == "no_mut":
        return None
    if kind in NETWORK:
        return Mutation(kind)
    names = sorted(ranges)
    name = names[int(dice.random() * len(names))]
    old = parent[name]
    grow = dice.random() < 0.5
    new = stepped(old, ranges[name], grow=grow)
    if new == old:
        new = stepped(old, ranges[name], grow=not grow)
    return None if new == old else Mutation(name, old, new)


def _drawn(outcomes: Mapping[str, float], point: float) -> str:
    """The outcome in whose stretch a point lies."""
    for kind, weight in outcomes.items():
        if point < weight:
            return kind
        point -= weight
    return max(outcomes, key=lambda kind: outcomes[kind])  # the last bit of a sum


def stepped(old: float, bounds: Bounds, *, grow: bool) -> int | float:
    """The value one step up or down: clamped, and for an int rounded away from the old value."""
    raw = old * (bounds.grow_factor if grow else bounds.shrink_factor)
    if not isinstance(old, int):
        return min(max(raw, bounds.min), bounds.max)
    away = math.ceil(raw) if grow else math.floor(raw)
    return min(max(away, math.ceil(bounds.min)), math.floor(bounds.max))
