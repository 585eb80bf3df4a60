"""How long a run will take, where runs of the same class have shown it; otherwise nothing is said.

A *class* is everything that makes a step dear: algorithm, model, place, population and the sizes of a batch. The
time of a step is the median over the completed runs of the class that the stack has on the platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import RunState
from arena_gitops.spec.wire import ResourceDocument

SHOWN = frozenset({RunState.COMPLETED, RunState.STOPPED})
"""States whose step count and time are those of real work."""
CLASS = (
    "manifest.algorithm.name",
    "manifest.algorithm.batch_size",
    "manifest.algorithm.group_size",
    "manifest.algorithm.max_output_tokens",
    "manifest.algorithm.update_epochs",
    "manifest.training.pop_size",
    "manifest.training.evaluation_interval",
    "manifest.training.eval_rows",
    "manifest.network.max_context_length",
    "model.id",
    "tier",
    "num_nodes",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of a worker, and what that is known from."""

    seconds: float
    basis: str


@dataclass(frozen=True, slots=True)
class History:
    """Seconds per step of every run that has ended, by its class."""

    known: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, documents: Iterable[ResourceDocument]) -> History:
        """What the runs of these resources have taken."""
        found: dict[str, dict[str, float]] = {}
        for document in documents:
            run = document.run
            if document.kind == TRAINED and run and run.state in SHOWN and run.step and run.spent_s > 0:
                found.setdefault(_class(document.spec), {})[run.run_id] = run.spent_s / run.step
        return cls({name: tuple(steps.values()) for name, steps in found.items()})

    def estimate(self, spec: Mapping[str, Any], steps: int) -> Estimate | None:
        """For so many steps of this experiment; None where nothing like it has run."""
        seen = self.known.get(_class(spec))
        if not seen or steps <= 0:
            return None
        runs = "1 run" if len(seen) == 1 else f"{len(seen)} runs"
        each = median(seen)
        return Estimate(each * steps, f"history: {runs} of the same class, {each:.3g} s per step")


def _class(spec: Mapping[str, Any]) -> str:
    return sha256_json([spec_at(spec, path) for path in CLASS])
