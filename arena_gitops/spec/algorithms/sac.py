"""SAC: reward and entropy, weighed by a temperature that is learned (Haarnoja et al., arXiv 1812.05905)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import ContinuousKnobs
from arena_gitops.spec.numbers import Float


class SacKnobs(ContinuousKnobs):
    """Knobs of SAC."""

    ALGORITHM: ClassVar[str] = "SAC"

    name: Literal["SAC"] = "SAC"
    lr_actor: Annotated[Float, Field(ge=0)] = 3e-4
    """of the actor and of its temperature"""
    lr_critic: Annotated[Float, Field(ge=0)] = 3e-4
    target_entropy: Float | None = None
    """entropy the temperature holds; absent: minus the number of action values"""
