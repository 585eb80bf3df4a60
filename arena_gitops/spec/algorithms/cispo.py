"""CISPO: log-probabilities weighed by a capped ratio, so that no token loses its gradient (arXiv 2506.13585)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.knobs import GroupKnobs
from arena_gitops.spec.numbers import Float


class CispoKnobs(GroupKnobs):
    """GRPO's knobs; `clip_coef_high` is the cap of the ratio itself, `clip_coef` is not read."""

    ALGORITHM: ClassVar[str] = "CISPO"

    name: Literal["CISPO"] = "CISPO"
    loss_type: Literal["cispo"] = "cispo"
    normalization: Literal["sequence", "token", "constant"] = "token"
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.0
    clip_coef_high: Annotated[Float, Field(ge=0)] | None = 5.0
