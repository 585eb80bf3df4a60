"""What one iteration and one evaluation mean, for the loop that does not want to know the algorithm.

A task is what is learned from, met by an algorithm: `scored` generates completions and has them scored, `imitated`
learns targets as they stand, `replayed` and `collected` act in environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from arena_runner.population.member import Member


@dataclass(frozen=True, slots=True)
class Transcript:
    """A completion people can read."""

    prompt: str
    completion: str
    reward: float


@dataclass(frozen=True, slots=True)
class Iterated:
    """What one iteration did to one member."""

    prompts: int
    steps: int
    """`max_steps` units"""
    tokens: int
    """sampled or learned tokens: what a rate counts"""
    signal: bool
    reward: float | None
    metrics: Mapping[str, float]
    transcripts: tuple[Transcript, ...] = ()
    rate: str = "tokens_per_second"
    """name of the rate: what `tokens` counts"""


@dataclass(frozen=True, slots=True)
class Probe:
    """A fixed completion with the logprobs its weights give it, so that a loaded copy can be recognised."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """One place on held-out rows."""

    scores: tuple[float, ...]
    """per row, higher is better; their mean is the fitness"""
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """named parts of the scores, per row"""
    values: Mapping[str, float] = field(default_factory=dict)
    """further means worth a curve"""
    transcripts: tuple[Transcript, ...] = ()
    probe: Probe | None = None


class Task(Protocol):
    """One per run; holds the train split and the model."""

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """One optimizer phase for every member, each on its own next prompts with its own hyperparameters.

        Members that are not named must keep weights, moments and step count bit for bit.
        """
        ...

    def judge(self, places: Sequence[int], rows: Sequence[Any], /) -> dict[int, Judged]:
        """Score places on the same rows (prompts, or seeds of episodes). Must depend on weights and rows only, and must change nothing."""
        ...
