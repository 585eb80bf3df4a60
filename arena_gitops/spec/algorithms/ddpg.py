"""DDPG: a deterministic actor climbs its critic (Lillicrap et al., arXiv 1509.02971)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from arena_gitops.spec.classic_knobs import NoisyActorKnobs
from arena_gitops.spec.numbers import Float


class DdpgKnobs(NoisyActorKnobs):
    """Knobs of DDPG."""

    ALGORITHM: ClassVar[str] = "DDPG"

    name: Literal["DDPG"] = "DDPG"
    tau: Annotated[Float, Field(ge=0, le=1)] = 1e-3
