"""Which checkpoint a rule names: `best`, `step_N`, `step_N/mK`. Pure.

`best` is the export with the highest fitness, or the one that is best by another figure, ties going to the earliest
step and then the lowest member; NaN never wins. `step_N` is the fittest of the exports at the greatest step at or before N.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from arena_gitops.spec.job import Checkpoint

STEP = re.compile(r"^step_(?P<step>[0-9]+)(/m(?P<member>[0-9]+))?$")


class NoCheckpointError(LookupError):
    """The rule names nothing; the message lists what exists."""


def best(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """The fittest; None when nothing has a fitness."""
    scored = [c for c in checkpoints if _scored(c)]
    return min(scored, key=_rank, default=None)


def best_by(
    checkpoints: Iterable[Checkpoint], figures: Mapping[tuple[int, int], float], mode: Literal["max", "min"]
) -> Checkpoint | None:
    """The best by a figure of their evaluations, by step and member; None when none has one that is a number."""
    told = [(figures.get((c.step, c.member), math.nan), c) for c in checkpoints]
    sign = -1 if mode == "max" else 1
    ranked = [((sign * value, c.step, c.member), c) for value, c in told if math.isfinite(value)]
    return min(ranked, key=lambda one: one[0], default=(None, None))[1]


def fittest_at(checkpoints: Iterable[Checkpoint], step: int) -> Checkpoint | None:
    """The fittest export of exactly this step, or the lowest member when none was scored."""
    return min((c for c in checkpoints if c.step == step), key=_rank, default=None)


def choose(rule: str, checkpoints: Iterable[Checkpoint]) -> Checkpoint:
    """The checkpoint a rule names; raises NoCheckpointError saying what there is."""
    checkpoints = tuple(checkpoints)
    if rule == "best":
        chosen = best(checkpoints)
    elif match := STEP.match(rule):
        member = int(match["member"]) if match["member"] else None
        chosen = _at_step(checkpoints, int(match["step"]), member)
    else:
        raise NoCheckpointError(f"{rule!r} is not best, step_N or step_N/mK")
    if chosen is None:
        raise NoCheckpointError(f"no checkpoint {rule}; there are: {listing(checkpoints)}")
    return chosen


def listing(checkpoints: Iterable[Checkpoint]) -> str:
    """The labels of what exists, newest first, for messages."""
    ordered = sorted(checkpoints, key=lambda c: (-c.step, c.member))
    labels = [f"{c.label} (fitness {c.fitness:.4g})" if _scored(c) else c.label for c in ordered[:12]]
    more = f" and {len(ordered) - 12} more" if len(ordered) > 12 else ""
    return ", ".join(labels) + more if labels else "none"


def _at_step(checkpoints: tuple[Checkpoint, ...], step: int, member: int | None) -> Checkpoint | None:
    candidates = [c for c in checkpoints if c.step <= step and (member is None or c.member == member)]
    newest = max((c.step for c in candidates), default=None)
    return None if newest is None else fittest_at(candidates, newest)


def _scored(checkpoint: Checkpoint) -> bool:
    return checkpoint.fitness is not None and math.isfinite(checkpoint.fitness)


def _rank(checkpoint: Checkpoint) -> tuple[float, int, int]:
    fitness = checkpoint.fitness if _scored(checkpoint) and checkpoint.fitness is not None else -math.inf
    return (-fitness, checkpoint.step, checkpoint.member)
