"""The end of a generation as one value: new places, what to copy, and a record for every place.

Nothing here touches weights: the loop performs `copies` on adapters and moments. With one place, or with
`hpo: false`, the loop does not call this at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena_gitops.spec.job import Lineage
from arena_runner.population.member import Member
from arena_runner.population.mutate import Bounds, Mutation, Odds, mutate
from arena_runner.population.tournament import parents, rank


@dataclass(frozen=True, slots=True)
class Rules:
    """How a population evolves, as its manifest says."""

    tournament_size: int
    elitism: bool
    odds: Odds
    ranges: Mapping[str, Bounds]
    seed: int


@dataclass(frozen=True, slots=True)
class Evolved:
    """What a generation's end decided."""

    members: tuple[Member, ...]
    copies: tuple[tuple[int, int], ...]
    """(parent, place), to be done in this order"""
    records: tuple[Lineage, ...]


def evolve(
    members: Sequence[Member],
    scores: Sequence[Sequence[float]],
    rules: Rules,
    generation: int,
    waiting: frozenset[int] = frozenset(),
) -> Evolved:
    """End one generation.

    Args:
        members: Every place, in order.
        scores: For every place its score on each evaluation row; rows are shared by all places.
        rules: Selection and mutation.
        generation: Number of this generation's end, counted from 1.
        waiting: Places that have reached `max_steps`: they may be copied, but are not overwritten, because a copy
            that trains no further would only hide what was scored.
    """
    fitness = [mean(row) for row in scores]
    winners = parents(
        fitness,
        tournament_size=rules.tournament_size,
        elitism=rules.elitism,
        seed=rules.seed,
        generation=generation,
    )
    chosen = [place if place in waiting else parent for place, parent in enumerate(winners)]
    placed = [_placed(members, place, parent, rules, generation) for place, parent in enumerate(chosen)]
    records = tuple(
        _record(members[place], chosen[place], placed[place][1], scores, generation)
        for place in range(len(members))
    )
    # A winner ranks above whom it overwrites, so from the worst place up every source is still what it was.
    order = sorted(range(len(members)), key=lambda place: rank(fitness, place))
    copies = tuple((chosen[place], place) for place in order if chosen[place] != place)
    return Evolved(tuple(member for member, _ in placed), copies, records)


def _placed(
    members: Sequence[Member], place: int, parent: int, rules: Rules, generation: int
) -> tuple[Member, Mutation | None]:
    """The place after selection: untouched when it won itself, else a copy of its parent, perhaps mutated."""
    if parent == place:
        return members[place], None
    inherited = dict(members[parent].hyperparameters)
    mutation = mutate(
        inherited, rules.ranges, rules.odds, seed=rules.seed, generation=generation, place=place
    )
    if mutation is not None and mutation.new is not None:
        inherited[mutation.name] = mutation.new
    return members[place].overwritten(inherited), mutation


def _record(
    member: Member, parent: int, mutation: Mutation | None, scores: Sequence[Sequence[float]], generation: int
) -> Lineage:
    return Lineage(
        generation=generation,
        step=member.step,
        member=member.index,
        parent=parent,
        mutation=mutation.name if mutation else None,
        old=mutation.old if mutation else None,
        new=mutation.new if mutation else None,
        fitness=_finite(mean(scores[member.index])),
        parent_fitness=_finite(mean(scores[parent])),
        paired_se=None
        if parent == member.index
        else _finite(paired_se(scores[parent], scores[member.index])),
    )


def _finite(value: float) -> float | None:
    """None for NaN: a member that diverged has no fitness."""
    return value if math.isfinite(value) else None


def mean(values: Sequence[float]) -> float:
    """The mean, summed exactly, so that it does not depend on the order of rows."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Standard deviation with n-1; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean."""
    return spread(values) / math.sqrt(len(values))


def paired_se(winner: Sequence[float], loser: Sequence[float]) -> float:
    """Standard error of the mean difference over shared rows."""
    return standard_error([w - lo for w, lo in zip(winner, loser, strict=True)])
