"""What a text manifest's numbers amount to: iterations, generations, completions, evaluations (training.md §4).

Counts are those of the manifest's start values; a member whose batch or group size mutates reaches
`max_steps` in fewer or more iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_gitops.spec.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Units:
    """A run in numbers people can judge; counts are per member unless they say otherwise."""

    max_steps: int
    """completions scored, for SFT rows"""
    steps_per_iteration: int
    iterations: int
    generations: int
    """0 when nothing evolves"""
    evaluations: int
    steps_of_all: int
    """training steps of the whole population"""
    evaluation_steps_of_all: int
    """rows evaluated by the whole population; they never count in `max_steps`"""

    @property
    def evaluation_share(self) -> float:
        """Evaluated rows as a share of all rows processed."""
        return self.evaluation_steps_of_all / (self.evaluation_steps_of_all + self.steps_of_all)


def units(manifest: Manifest, *, rows: int | None = None) -> Units | None:
    """The run's counts; None for an algorithm without a room.

    Args:
        manifest: the effective manifest.
        rows: training rows, where known; `num_epochs` limits the run to rows x epochs (x group_size).
    """
    step = steps_per_iteration(manifest)
    if step is None:
        return None
    training = manifest.training
    limit = max_steps(manifest, rows=rows)
    iterations = -(-limit // step)
    evaluations = iterations // training.evaluation_interval
    return Units(
        max_steps=limit,
        steps_per_iteration=step,
        iterations=iterations,
        generations=iterations // training.evo_steps if manifest.evolves else 0,
        evaluations=evaluations,
        steps_of_all=iterations * step * training.pop_size,
        evaluation_steps_of_all=evaluations * training.eval_rows * training.eval_loop * training.pop_size,
    )


def steps_per_iteration(manifest: Manifest) -> int | None:
    """Steps one iteration of a member takes at the start values; None for an algorithm without a room."""
    match manifest.algorithm:
        case GrpoKnobs() as knobs:
            return knobs.batch_size * knobs.group_size
        case SftKnobs() as knobs:
            return knobs.batch_size
        case _:
            return None


def max_steps(manifest: Manifest, *, rows: int | None) -> int:
    """`training.max_steps`, or fewer where `num_epochs` over `rows` ends earlier."""
    training, knobs = manifest.training, manifest.algorithm
    if training.num_epochs is None or rows is None:
        return training.max_steps
    per_row = knobs.group_size if isinstance(knobs, GrpoKnobs) else 1
    return min(training.max_steps, max(1, rows * training.num_epochs * per_row))
