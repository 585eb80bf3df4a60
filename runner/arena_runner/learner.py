"""What every update touches: the base model, its population of adapters, their optimizer and the token budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from arena_runner.adapters import Population
from arena_runner.models import BaseModel
from arena_runner.optim import StackedAdamW


@dataclass(frozen=True, slots=True)
class Learner:
    """Handed to `algorithms.<name>.update`; build it once per run."""

    base: BaseModel
    population: Population
    optimizer: StackedAdamW
    tokens_per_backward: int = 1024
    """budget of one forward and backward; independent of the number of members"""

    def __len__(self) -> int:
        return self.population.members

    def copy(self, parent: int, place: int) -> None:
        """Overwrite a place's adapter, moments and step count with another's."""
        self.population.copy(parent, place)
        self.optimizer.copy(parent, place)

    def mutate(self, place: int, kind: str, generation: int) -> str:
        """No adapter changes its shape."""
        raise NotImplementedError(kind)

    def export(self, place: int) -> Mapping[str, Tensor]:
        """One member's adapter."""
        return self.population.export(place)

    def load(self, place: int, weights: Mapping[str, Tensor]) -> None:
        """Put an export in a place."""
        self.population.load(place, weights)

    def save(self, place: int, folder: Path) -> dict[str, Any]:
        """Write one member's adapter in peft's format; what to note beside it."""
        self.population.save(place, folder)
        return {
            "adapter_digest": self.population.digest(place),
            "base": self.base.ref,
            "base_revision": self.base.revision,
            "base_digest": self.base.digest,
        }

    def state(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Adapters and moments of all."""
        return self.population.state(), self.optimizer.state()

    def restore(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Continue from `state()`, bit for bit."""
        self.population.restore(weights)
        self.optimizer.restore(moments)


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    """What one update did to one member."""

    signal: bool
    """False: nothing to learn from (all groups had equal rewards), and the optimizer was skipped"""
    metrics: dict[str, float] = field(default_factory=dict)
    """loss, kl, clip_fraction, ratio_mean, logp_diff, ess, entropy, grad_norm, tokens …"""
