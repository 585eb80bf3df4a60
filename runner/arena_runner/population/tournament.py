"""Who is copied where: the elite keeps its place, every other place holds a small tournament.

With an elite a place defends itself against `tournament_size - 1` others drawn with replacement, so it is only ever
overwritten by a fitter one, and a population of two compares both. Without one nobody is safe: `tournament_size`
members are drawn with replacement from all places (Miller and Goldberg 1995), and the best may be lost. Fitness that is NaN never wins. Ties go to the lowest place, so that the outcome is a function of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arena_runner.seeds import rng


def fittest(fitness: Sequence[float]) -> int:
    """The place with the highest fitness; ties to the lowest, NaN never (unless all are)."""
    return max(range(len(fitness)), key=lambda place: rank(fitness, place))


def parents(
    fitness: Sequence[float], *, tournament_size: int, elitism: bool, seed: int, generation: int
) -> tuple[int, ...]:
    """For every place the place it will be a copy of; itself when it is to be left alone."""
    places = range(len(fitness))

    def winner(place: int) -> int:
        others = [rival for rival in places if rival != place] if elitism else list(places)
        drawn = _drawn(others, tournament_size - elitism, (seed, generation, place))
        return max(drawn | {place} if elitism else drawn, key=lambda rival: rank(fitness, rival))

    return tuple(winner(place) for place in places)


def _drawn(rivals: Sequence[int], times: int, key: tuple[int, int, int]) -> set[int]:
    seed, generation, place = key
    dice = rng(seed, "tournament", generation, place)
    return {rivals[int(dice.random() * len(rivals))] for _ in range(times) if rivals}


def rank(fitness: Sequence[float], place: int) -> tuple[float, int]:
    """What places are ordered by: no two are equal."""
    value = fitness[place]
    return (-math.inf if math.isnan(value) else value, -place)
