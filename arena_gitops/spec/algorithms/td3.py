"""TD3: DDPG with two critics, delayed actor and smoothed targets (Fujimoto et al., arXiv 1802.09477)."""

from __future__ import annotations

from typing import ClassVar, Literal

from arena_gitops.spec.classic_knobs import NoisyActorKnobs


class Td3Knobs(NoisyActorKnobs):
    """Knobs of TD3."""

    ALGORITHM: ClassVar[str] = "TD3"

    name: Literal["TD3"] = "TD3"
