"""DQN: a value for every action, learned from replayed transitions (Mnih et al., Nature 2015)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import Acts, ClassicKnobs
from arena_gitops.spec.numbers import Bool, Float
from arena_gitops.spec.section import Understood, UnlessWritten


class DqnKnobs(ClassicKnobs):
    """Knobs of deep Q-learning."""

    ALGORITHM: ClassVar[str] = "DQN"
    ACTS: ClassVar[Acts] = "choice"
    MUTABLE: ClassVar[tuple[str, ...]] = ("batch_size", "gamma", "learn_step", "lr", "tau")

    name: Literal["DQN"] = "DQN"
    lr: Annotated[Float, Field(ge=0)] = 1e-4
    tau: Annotated[Float, Field(ge=0, le=1)] = 1e-3
    """share by which the target network follows after an update"""
    double: Bool = True
    """whether the online network chooses what the target network judges"""
    dueling: Annotated[Bool | None, UnlessWritten] = None
    """split the head into the state's value and the actions' advantages; not among the published fields"""

    cudagraphs: Understood[Bool] = None
