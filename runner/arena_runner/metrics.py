"""The names under which figures are recorded: curves of a member, of its hyperparameters, of the process.

Every name is one MLflow accepts; a component whose author named it otherwise has the odd characters replaced.
"""

from __future__ import annotations

import math
import re
import resource
import sys
from collections.abc import Mapping

import psutil

from arena_gitops.spec.job import Metrics
from arena_runner.population.lineage import mean
from arena_runner.population.member import Member
from arena_runner.rollouts.task import Iterated, Judged

_ODD = re.compile(r"[^A-Za-z0-9_./ -]")


def of_iteration(member: Member, done: Iterated, *, seconds: float) -> Metrics:
    """One member's figures of one iteration; `member` is as it was while the iteration ran."""
    values = {
        **done.metrics,
        done.rate: done.tokens / seconds if seconds > 0 else 0.0,
        "signal": float(done.signal),
        **{f"hp/{name}": float(value) for name, value in member.hyperparameters.items()},
    }
    return Metrics(member=member.index, step=member.step + done.steps, values=named(values))


def of_process(
    step: int, *, seconds: float, packed: float | None = None, expected_gib: float | None = None
) -> Metrics:
    """Figures of the whole run.

    `packed` is the share of trained tokens that took the shared-prefix path, `expected_gib` the most that a plan
    would have said.
    """
    scale = 1024**3 if sys.platform == "darwin" else 1024**2  # ru_maxrss counts bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
    values = {"memory/peak_gib": peak, "memory/rss_gib": psutil.Process().memory_info().rss / 1024**3}
    if expected_gib is not None:
        values |= {"memory/expected_gib": expected_gib, "memory/expected_over_peak": expected_gib / peak}
    if packed is not None:
        values["packed_share"] = packed
    return Metrics(member=None, step=step, values=named({**values, "iteration_seconds": seconds}))


def of_evaluation(judged: Judged) -> dict[str, float]:
    """An evaluation's figures: fitness, its components, and what is logged beside it."""
    values = {
        "eval/reward": mean(judged.scores),
        **{f"eval/reward/{part}": mean(rows) for part, rows in judged.parts.items()},
        **{f"eval/{key}": value for key, value in judged.values.items()},
    }
    return named(values)


def named(values: Mapping[str, float]) -> dict[str, float]:
    """Allowed names, finite values: a figure that is not a number is left out rather than invented."""
    return {_ODD.sub("_", name): float(value) for name, value in values.items() if math.isfinite(value)}
