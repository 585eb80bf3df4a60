"""MADDPG: DDPG for several agents whose critics see everything (Lowe et al., arXiv 1706.02275)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import Acts, NoisyActorKnobs
from arena_gitops.spec.numbers import Float, Int
from arena_gitops.spec.section import Only


class MaddpgKnobs(NoisyActorKnobs):
    """Knobs of MADDPG; agents that choose among actions explore by drawing, those with floats by noise."""

    ALGORITHM: ClassVar[str] = "MADDPG"
    ACTS: ClassVar[Acts] = "either"
    SEVERAL: ClassVar[bool] = True

    name: Literal["MADDPG"] = "MADDPG"
    gamma: Annotated[Float, Field(ge=0, le=1)] = 0.95
    lr_actor: Annotated[Float, Field(ge=0)] = 1e-3
    lr_critic: Annotated[Float, Field(ge=0)] = 1e-2
    tau: Annotated[Float, Field(ge=0, le=1)] = 1e-2

    policy_freq: Annotated[
        Int | None, Only(1, why="actors and targets move with every update of the critics")
    ] = None  # type: ignore[assignment]  # the published client knows no such knob of MADDPG
