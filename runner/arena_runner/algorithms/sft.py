"""SFT: cross-entropy on completion tokens with EOS, mean over the tokens of the member's batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena_runner.learner import Learner, MemberUpdate


@dataclass(frozen=True, slots=True)
class SftSettings:
    """One member's own values."""

    lr: float
    max_grad_norm: float = 1.0
    update_epochs: int = 1
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class Example:
    """One row: the prompt is read, the target (with its EOS, appended by the caller) is learned."""

    member: int
    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


def update(
    learner: Learner, examples: Sequence[Example], settings: Mapping[int, SftSettings]
) -> dict[int, MemberUpdate]:
    """Take `update_epochs` optimizer steps for every member in `settings`; others stay bit for bit."""
    raise NotImplementedError
