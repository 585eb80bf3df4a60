"""What the loop works with, whoever opened it: `opening` for text, `opening_classic` for policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import JobSpec, Log
from arena_gitops.spec.knobs import Knobs
from arena_gitops.spec.manifest import Manifest, parse_manifest
from arena_gitops.spec.population import ClassicProbabilities, Tournament
from arena_runner.checkpoint import Standing
from arena_runner.population.lineage import Rules
from arena_runner.population.mutate import Odds
from arena_runner.ports import TrainPorts
from arena_runner.rollouts.task import Task
from arena_runner.schedule import Schedule
from arena_runner.trained import Lived, Trained


class Film(Protocol):
    """What is told of an episode that was filmed (`rollouts.film.Film`)."""

    @property
    def steps(self) -> int:
        """Its length."""
        ...

    @property
    def paid(self) -> float:
        """What it paid in all."""
        ...


class JobError(ArenaError):
    """The job asks for something that has no room, or lacks a part it needs."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is never trained on: prompts, or seeds of episodes."""

    eval: Sequence[Any]
    test: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything of a run that is open."""

    job: JobSpec
    schedule: Schedule
    rules: Rules
    trained: Trained
    task: Task
    held: Held
    origin: Mapping[str, Tensor]
    """what every member started from: the policy the experiment is compared with"""
    best: Mapping[str, Tensor]
    standing: Standing
    process: Callable[[], Mapping[str, float | None]] = dict
    """figures of the whole process beside time and memory"""
    lived: Lived | None = None
    """what a resume needs of the task"""
    pages: Mapping[str, tuple[Path, str]] = field(default_factory=dict)
    """pages of the replay that the run was resumed with"""
    film: Callable[[Path], Film | None] | None = None
    """plays an episode of evaluation with place 0 and writes it as a GIF; None: there is nothing to look at"""


def read_manifest(job: JobSpec, ports: TrainPorts) -> Manifest:
    """The manifest, unless it asks for what has no room; what has no effect is said, never silent."""
    parsed = parse_manifest(dict(job.manifest))
    if parsed.refusals:
        raise JobError("\n".join(str(refusal) for refusal in parsed.refusals))
    for note in parsed.notes:
        ports.emit(Log(level="info", message=str(note)))
    return parsed.manifest


def rules_of(job: JobSpec, manifest: Manifest) -> Rules:
    """Evolution as the manifest describes it; ranges of what this algorithm does not have were reported earlier."""
    selection = manifest.selection
    if not isinstance(selection, Tournament):
        raise JobError("multi_frequency selection has no room here")
    assert isinstance(manifest.algorithm, Knobs)
    mutable = manifest.algorithm.hyperparameters()
    chances = manifest.mutation.probabilities
    odds = Odds(chances.no_mut, chances.rl_hp_mut)
    if isinstance(chances, ClassicProbabilities):
        odds = Odds(chances.no_mut, chances.rl_hp_mut, chances.arch_mut, chances.params_mut, chances.act_mut)
    return Rules(
        tournament_size=selection.tournament_size,
        elitism=selection.elitism,
        odds=odds,
        ranges={name: span for name, span in manifest.mutation.rl_hp_selection.items() if name in mutable},
        seed=job.seed,
    )
