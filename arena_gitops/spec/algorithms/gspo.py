"""GSPO: one ratio per completion, clipped very close to one (Zheng et al., arXiv 2507.18071)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import GroupKnobs
from arena_gitops.spec.numbers import Float


class GspoKnobs(GroupKnobs):
    """GRPO's knobs with the defaults of the paper."""

    ALGORITHM: ClassVar[str] = "GSPO"

    name: Literal["GSPO"] = "GSPO"
    loss_type: Literal["gspo"] = "gspo"
    importance_sampling_level: Literal["token", "turn", "trajectory"] = "trajectory"
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.0
    clip_coef: Annotated[Float, Field(ge=0, le=1)] = 3e-4
    clip_coef_high: Annotated[Float, Field(ge=0)] | None = 4e-4
