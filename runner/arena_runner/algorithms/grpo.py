"""The GRPO loss, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from arena_runner.engines.base import Completion
from arena_runner.learner import Learner, MemberUpdate


class Normalisation(StrEnum):
    """How a member's token losses become one number."""

    SEQUENCE = "sequence"
    """mean over sequences of the mean over their tokens (GRPO)"""
    TOKEN = "token"  # noqa: S105 - not a password
    """sum over all tokens divided by their number (DAPO)"""
    CONSTANT = "constant"
    """sum divided by sequences times the longest allowed completion (Dr. GRPO)"""


class Advantage(StrEnum):
    """How rewards of a group become advantages."""

    MEAN_STD = "mean_std"
    MEAN_ONLY = "mean_only"


class Kl(StrEnum):
    """Estimator of the divergence from the reference policy."""

    K3_IS = "k3_is"
    K3 = "k3"
    K2 = "k2"
    K1_REWARD = "k1_reward"


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """One member's own values; every field may differ between members."""

    lr: float
    beta: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    max_grad_norm: float = 1.0
    update_epochs: int = 1
    temperature: float = 1.0
    """the sampling temperature; logprobs are trained at it"""
    normalisation: Normalisation = Normalisation.SEQUENCE
    advantage: Advantage = Advantage.MEAN_STD
    kl: Kl = Kl.K3_IS
    importance_cap: float = 2.0
    max_completion_tokens: int = 0
    """only read by `constant`"""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """One prompt's completions with their rewards; a completion whose scoring failed has None."""

    member: int
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    rewards: tuple[float | None, ...]


def update(
    learner: Learner, groups: Sequence[ScoredGroup], settings: Mapping[int, GrpoSettings]
) -> dict[int, MemberUpdate]:
    """Take `update_epochs` optimizer steps for every member in `settings`; others stay bit for bit."""
    raise NotImplementedError
