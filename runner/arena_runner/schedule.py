"""When things happen, as a function of counters alone, so that raising `max_steps` changes nothing that came before.

`max_steps` counts per member: completions scored, for SFT rows, for policies environment steps. The intervals count
iterations, for policies environment steps too: something is due at the end of the iteration that reaches its mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arena_gitops.spec.job import JobLimits
from arena_gitops.spec.manifest import Manifest
from arena_runner.population.member import Member


@dataclass(frozen=True, slots=True)
class Schedule:
    """The intervals of one run."""

    max_steps: int
    asked_steps: int
    """what the manifest asked for, before the server's limit"""
    evaluation_interval: int
    evo_steps: int | None
    """None: nothing evolves"""
    checkpoint_steps: int | None
    target_score: float | None
    per_iteration: int = 1
    """what an iteration adds to the count of the intervals: 1, or the environment steps of a slice"""

    def _due(self, interval: int, iteration: int) -> bool:
        per = self.per_iteration
        return iteration * per // interval > (iteration - 1) * per // interval

    def evolves_after(self, iteration: int) -> bool:
        """Whether a generation ends at the end of this iteration (the run's own end does not evolve)."""
        return self.evo_steps is not None and iteration > 0 and self._due(self.evo_steps, iteration)

    def evaluates_after(self, iteration: int) -> bool:
        """Whether fitness is due; a generation's end needs it, whatever the interval says."""
        return self.evolves_after(iteration) or self._due(self.evaluation_interval, iteration)

    def checkpoints_after(self, iteration: int) -> bool:
        """Whether every member is to be exported."""
        return self.checkpoint_steps is not None and self._due(self.checkpoint_steps, iteration)

    def stopped(self, member: Member) -> bool:
        """Whether a member has reached `max_steps`; it then waits for the others."""
        return member.step >= self.max_steps

    def capped(self, most: int | None) -> Schedule:
        """The same, with fewer steps where that is what is still asked for."""
        return (
            self
            if most is None or most >= self.max_steps
            else replace(self, max_steps=most, asked_steps=most)
        )

    def reached(self, fitness: Sequence[float]) -> bool:
        """Whether any member's fitness has reached `target_score`."""
        target = self.target_score
        return target is not None and any(value >= target for value in fitness)


def plan_schedule(manifest: Manifest, limits: JobLimits, *, rows: int, per_iteration: int = 1) -> Schedule:
    """The schedule of a manifest; `rows` is the size of the train split, which `num_epochs` counts in."""
    training = manifest.training
    per_row = getattr(manifest.algorithm, "group_size", 1)
    asked = training.max_steps if training.num_epochs is None else rows * training.num_epochs * per_row
    evolving = training.hpo and training.pop_size > 1
    return Schedule(
        max_steps=asked if limits.max_steps is None else min(asked, limits.max_steps),
        asked_steps=asked,
        evaluation_interval=training.evaluation_interval or training.evo_steps,
        evo_steps=training.evo_steps if evolving else None,
        checkpoint_steps=training.checkpoint_steps,
        target_score=training.target_score,
        per_iteration=per_iteration,
    )
