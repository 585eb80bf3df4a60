"""The published algorithm names: spellings, what each trains on, and its default generation length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["text", "gym", "offline", "bandit"]


@dataclass(frozen=True, slots=True)
class Published:
    """What the published client knows about an algorithm, whether or not it has a room here."""

    name: str
    family: Family
    evo_steps: int
    """default length of a generation; text counts iterations, the others environment steps"""
    env_type: str
    objective: str | None = None


def _text(*names: str) -> list[Published]:
    return [Published(name, "text", 20, "rollout") for name in names]


def _gym(*names: str) -> list[Published]:
    return [Published(name, "gym", 10_000, "gym") for name in names]


PUBLISHED: dict[str, Published] = {
    algorithm.name: algorithm
    for algorithm in (
        *_gym("PPO", "Recurrent PPO", "DQN", "Rainbow DQN", "DDPG", "TD3", "IPPO", "MADDPG", "MATD3"),
        Published("CQN", "offline", 5_000, "offline"),
        Published("NeuralUCB", "bandit", 500, "bandit"),
        Published("NeuralTS", "bandit", 500, "bandit"),
        *_text("GRPO", "GSPO", "CISPO", "LLMPPO", "LLMREINFORCE"),
        Published("DPO", "text", 20, "dataset", "preference"),
        Published("SFT", "text", 20, "dataset", "sft"),
    )
}

_SPELLINGS = {name.replace(" ", "").lower(): name for name in PUBLISHED}


def canonical_name(name: str) -> str | None:
    """The canonical name of a published spelling (`RainbowDQN`), None when it is not published."""
    return _SPELLINGS.get(name.replace(" ", "").lower())
