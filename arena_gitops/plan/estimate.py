"""How long a run will take, where runs of the same class have shown it; otherwise nothing is said.

Where none has, and a run acts in an environment that was profiled, it is said how long the environment's own steps take.
A *class* is everything that makes a step dear: algorithm, model, place, population and the sizes of a batch. The
time of a step is the median over the completed runs of the class that the stack has on the platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.inputs import EnvironmentInput, EnvironmentProfile
from arena_gitops.spec.job import RunState
from arena_gitops.spec.wire import ResourceDocument

MOST_PROCESSES = 16
"""in which a worker steps one environment"""
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
    least: bool = False
    """whether it will take longer, and nobody knows how much"""


@dataclass(frozen=True, slots=True)
class History:
    """Seconds per step of every run that has ended, by its class."""

    known: Mapping[str, tuple[float, ...]]
    profiles: Mapping[str, EnvironmentProfile] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[ResourceDocument], profiles: Mapping[str, EnvironmentProfile]) -> History:
        """What the runs of these resources have taken, and what environments cost."""
        found: dict[str, dict[str, float]] = {}
        for document in documents:
            run = document.run
            if document.kind == TRAINED and run and run.state in SHOWN and run.step and run.spent_s > 0:
                found.setdefault(_class(document.spec), {})[run.run_id] = run.spent_s / run.step
        return cls({name: tuple(steps.values()) for name, steps in found.items()}, profiles)

    def estimate(self, spec: Mapping[str, Any], steps: int, processors: int) -> Estimate | None:
        """For so many steps of this experiment; None where nothing like it has run."""
        seen = self.known.get(_class(spec))
        if steps <= 0:
            return None
        if not seen:
            return self._stepping(spec, steps, processors)
        runs = "1 run" if len(seen) == 1 else f"{len(seen)} runs"
        each = median(seen)
        return Estimate(each * steps, f"history: {runs} of the same class, {each:.3g} s per step")

    def _stepping(self, spec: Mapping[str, Any], steps: int, processors: int) -> Estimate | None:
        """What the environment alone takes: an episode of evaluation has no known length, learning no known time."""
        profile = profile_of(spec, self.profiles)
        members = spec_at(spec, "manifest.training.pop_size")
        if profile is None or not isinstance(members, int) or profile.steps_per_second <= 0:
            return None
        processes = max(1, min(MOST_PROCESSES, processors))
        rate = f"{profile.steps_per_second:,.0f} a second"
        basis = (
            f"profile: {steps * members:,} steps of {members} members at {rate} in each of {processes} processes; "
            "learning and evaluation come on top"
        )
        return Estimate(steps * members / (profile.steps_per_second * processes), basis, least=True)


def profile_of(
    spec: Mapping[str, Any], profiles: Mapping[str, EnvironmentProfile]
) -> EnvironmentProfile | None:
    """What is known of the environment of an experiment."""
    given = spec_at(spec, "inputs.environment")
    if not isinstance(given, Mapping) or not profiles:
        return None
    return profiles.get(EnvironmentInput.model_validate(dict(given)).content)


def _class(spec: Mapping[str, Any]) -> str:
    return sha256_json([spec_at(spec, path) for path in CLASS])
