"""When things happen, as a function of counters alone, so that raising `max_steps` changes nothing that came before.

`max_steps` counts per member: completions scored, for SFT rows. The intervals count iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    def evolves_after(self, iteration: int) -> bool:
        """Whether a generation ends at the end of this iteration (the run's own end does not evolve)."""
        return self.evo_steps is not None and iteration > 0 and iteration % self.evo_steps == 0

    def evaluates_after(self, iteration: int) -> bool:
        """Whether fitness is due; a generation's end needs it, whatever the interval says."""
        return self.evolves_after(iteration) or iteration % self.evaluation_interval == 0

    def checkpoints_after(self, iteration: int) -> bool:
        """Whether every member is to be exported."""
        return self.checkpoint_steps is not None and iteration % self.checkpoint_steps == 0

    def stopped(self, member: Member) -> bool:
        """Whether a member has reached `max_steps`; it then waits for the others."""
        return member.step >= self.max_steps

    def reached(self, fitness: Sequence[float]) -> bool:
        """Whether any member's fitness has reached `target_score`."""
        target = self.target_score
        return target is not None and any(value >= target for value in fitness)


def plan_schedule(manifest: Manifest, limits: JobLimits, *, rows: int) -> Schedule:
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
    )
