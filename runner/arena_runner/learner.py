"""What every update touches: the base model, its population of adapters, their optimizer and the token budget."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    """What one update did to one member."""

    signal: bool
    """False: nothing to learn from (all groups had equal rewards), and the optimizer was skipped"""
    metrics: dict[str, float] = field(default_factory=dict)
    """loss, kl, clip_fraction, ratio_mean, logp_diff, ess, entropy, grad_norm, tokens …"""
