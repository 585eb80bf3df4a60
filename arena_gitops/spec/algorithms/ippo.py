"""IPPO: PPO for every one of several agents (de Witt et al., arXiv 2011.09533)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import OnPolicyKnobs
from arena_gitops.spec.numbers import Bool, Int
from arena_gitops.spec.section import NotActedOn, Only


class IppoKnobs(OnPolicyKnobs):
    """Knobs of IPPO; steps are those of the environment, however many agents act in each."""

    ALGORITHM: ClassVar[str] = "IPPO"
    SEVERAL: ClassVar[bool] = True

    name: Literal["IPPO"] = "IPPO"
    share_encoders: Annotated[
        Bool | None, Only(False, why="policy and value of an agent have encoders of their own")
    ] = None  # type: ignore[assignment]  # the published client knows no such knob of IPPO

    action_batch_size: Annotated[
        Int | None, Field(ge=1), NotActedOn("all environments of all members act in one step")
    ] = None
