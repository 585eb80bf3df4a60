"""Dr. GRPO: GRPO without its two biases, by length and by difficulty (Liu et al., arXiv 2503.20783)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import GroupKnobs
from arena_gitops.spec.numbers import Float


class DrGrpoKnobs(GroupKnobs):
    """GRPO's knobs; losses are divided by `max_output_tokens`, which must be written."""

    ALGORITHM: ClassVar[str] = "Dr.GRPO"

    name: Literal["Dr.GRPO"] = "Dr.GRPO"
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.0
    normalization: Literal["sequence", "token", "constant"] = "constant"
    adv_norm: Literal["mean_std", "mean_only"] = "mean_only"
