"""A member is a place: an adapter slot, a data cursor and a seed stream that last for the whole run.

Evolution overwrites what lies in a place (weights, moments, hyperparameters); the place's own counters go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

Hyperparameters = Mapping[str, int | float]
"""Knobs of one member that evolution may change; an `int` stays an int."""


@dataclass(frozen=True, slots=True)
class Member:
    """One place and its counters."""

    index: int
    hyperparameters: Hyperparameters
    step: int = 0
    """`max_steps` units: completions scored, for SFT rows"""
    iteration: int = 0
    """optimizer phases of this place, skipped ones included"""
    cursor: int = 0
    """prompts taken from the stream: the next one is row `cursor`"""
    silent: int = 0
    """iterations in a row whose batch held no signal"""

    @property
    def name(self) -> str:
        """The name people see: `m0`, `m1` …, by place."""
        return f"m{self.index}"

    def after_iteration(self, *, prompts: int, steps: int, signal: bool) -> Member:
        """The place once it has finished one more iteration."""
        return replace(
            self,
            step=self.step + steps,
            iteration=self.iteration + 1,
            cursor=self.cursor + prompts,
            silent=0 if signal else self.silent + 1,
        )

    def overwritten(self, hyperparameters: Hyperparameters) -> Member:
        """The place after a winner was copied into it; its counters are its own."""
        return replace(self, hyperparameters=dict(hyperparameters))
