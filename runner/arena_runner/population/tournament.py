"""Who is copied where: the elite keeps its place, every other place holds a small tournament.

A place defends itself against `tournament_size - 1` others drawn with replacement, so it is only ever overwritten
by a fitter one, and a population of two compares both. Fitness that is NaN never wins. Ties go to the lowest place, so that the outcome is a function of the scores.
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
    elite = fittest(fitness) if elitism else None
    return tuple(
        place if place == elite else _winner(fitness, tournament_size, (seed, generation, place))
        for place in range(len(fitness))
    )


def _winner(fitness: Sequence[float], size: int, key: tuple[int, int, int]) -> int:
    seed, generation, place = key
    dice = rng(seed, "tournament", generation, place)
    others = [rival for rival in range(len(fitness)) if rival != place]
    drawn = {others[int(dice.random() * len(others))] for _ in range(size - 1) if others}
    return max({place} | drawn, key=lambda rival: rank(fitness, rival))


def rank(fitness: Sequence[float], place: int) -> tuple[float, int]:
    """What places are ordered by: no two are equal."""
    value = fitness[place]
    return (-math.inf if math.isnan(value) else value, -place)
