"""Names of the environments that Gymnasium registers itself, so that a plan needs no Gymnasium.

Atari games come with `ale-py` and follow one pattern, `ALE/Breakout-v5`; PettingZoo's environments are modules,
`mpe2.simple_speaker_listener_v4`.
"""

from __future__ import annotations

import re

from arena_gitops.spec.inputs import PETTINGZOO
from arena_gitops.spec.problems import near

GYMNASIUM_IDS = frozenset(
    {
        "CartPole-v0",
        "CartPole-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
        "Acrobot-v1",
        "LunarLander-v3",
        "LunarLanderContinuous-v3",
        "BipedalWalker-v3",
        "BipedalWalkerHardcore-v3",
        "CarRacing-v3",
        "Blackjack-v1",
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "CliffWalking-v0",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "Taxi-v3",
        "Ant-v4",
        "Ant-v5",
        "HalfCheetah-v4",
        "HalfCheetah-v5",
        "Hopper-v4",
        "Hopper-v5",
        "Humanoid-v4",
        "Humanoid-v5",
        "HumanoidStandup-v4",
        "HumanoidStandup-v5",
        "InvertedDoublePendulum-v4",
        "InvertedDoublePendulum-v5",
        "InvertedPendulum-v4",
        "InvertedPendulum-v5",
        "Pusher-v4",
        "Pusher-v5",
        "Reacher-v4",
        "Reacher-v5",
        "Swimmer-v4",
        "Swimmer-v5",
        "Walker2d-v4",
        "Walker2d-v5",
    }
)

_ATARI = re.compile(r"ALE/[A-Z][A-Za-z0-9]*-v5")


def is_registered(name: str) -> bool:
    """Whether Gymnasium, ale-py or PettingZoo has an environment of this name."""
    return name in GYMNASIUM_IDS or bool(_ATARI.fullmatch(name) or PETTINGZOO.fullmatch(name))


def near_id(name: str) -> str | None:
    """The registered name most like `name`."""
    return near(name, GYMNASIUM_IDS)
