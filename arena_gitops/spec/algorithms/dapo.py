"""DAPO: clip higher, token mean, groups that teach nothing replaced, overlong answers marked down (arXiv 2503.14476)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import GroupKnobs
from arena_gitops.spec.numbers import Bool, Float


class DapoKnobs(GroupKnobs):
    """GRPO's knobs with the defaults of the paper; its overlong buffer is a fifth of the longest completion."""

    ALGORITHM: ClassVar[str] = "DAPO"

    name: Literal["DAPO"] = "DAPO"
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.0
    clip_coef_high: Annotated[Float, Field(ge=0)] | None = 0.28
    normalization: Literal["sequence", "token", "constant"] = "token"
    filter_zero_adv: Bool = True
    overlong_buffer: Annotated[Float, Field(ge=0, le=1)] = 0.2
