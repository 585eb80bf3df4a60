"""Rainbow DQN: DQN with six improvements (Hessel et al., arXiv 1710.02298)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from arena_gitops.spec.classic_knobs import Acts, ClassicKnobs
from arena_gitops.spec.numbers import Bool, Float, Int


class RainbowDqnKnobs(ClassicKnobs):
    """Knobs of Rainbow; it explores by the noise in its layers, so `training.eps_*` have no effect."""

    ALGORITHM: ClassVar[str] = "Rainbow DQN"
    ACTS: ClassVar[Acts] = "choice"
    MUTABLE: ClassVar[tuple[str, ...]] = ("batch_size", "beta", "gamma", "learn_step", "lr", "tau")

    name: Literal["Rainbow DQN"] = "Rainbow DQN"
    lr: Annotated[Float, Field(ge=0)] = 1e-4
    tau: Annotated[Float, Field(ge=0, le=1)] = 1e-3
    """share by which the target network follows after an update"""
    n_step: Annotated[Int, Field(ge=1)] = 3
    """rewards that are seen before the network's own estimate is"""
    combined_reward: Bool = False
    """learn the next step's distribution beside that of `n_step`"""
    beta: Annotated[Float, Field(ge=0, le=1)] = 0.4
    """how far unequal chances of being replayed are made up for; the same for the whole run"""
    prior_eps: Annotated[Float, Field(gt=0)] = 1e-6
    """least priority of a transition"""
    noise_std: Annotated[Float, Field(ge=0)] = 0.5
    """initial deviation of the noise in the layers of the heads, times one over the root of their width"""
    num_atoms: Annotated[Int, Field(ge=2)] = 51
    """values of return whose chances are learned"""
    v_min: Float = -10.0
    v_max: Float = 10.0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min ({self.v_min:g}) is not below v_max ({self.v_max:g})")
        return self
