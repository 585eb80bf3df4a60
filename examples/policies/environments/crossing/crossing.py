"""Two cars on two roads that cross: both want to be across, and whoever waits for the other loses a little time.

They begin at drawn distances and speeds, so that it is plain to both who should go first, and learn to agree on it.
Lengths are in metres, times in seconds; distances are to the middle of the crossing and negative beyond it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

TICK, FASTEST, LENGTH = 0.5, 15.0, 4.0
BRAKE, KEEP, ACCELERATE = range(3)
FORCE = {BRAKE: -5.0, KEEP: 0.0, ACCELERATE: 3.0}
ACROSS, CRASHED, WAITING = 5.0, -10.0, -0.1
STEPS = 60
FAR = 60.0

ByAgent = dict[str, Any]


class Crossing(ParallelEnv[str, np.ndarray, int]):
    """Each sees its own distance and speed and the other's; the episode is over for both at once."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "crossing_v0",
        "render_modes": ["rgb_array"],
        "render_fps": 4,
    }
    reward_range = (CRASHED, ACROSS)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.possible_agents = ["north", "east"]
        self.agents: list[str] = []
        self._sees = {agent: gym.spaces.Box(-2.0, 2.0, (4,), np.float32) for agent in self.possible_agents}
        self._does = {agent: gym.spaces.Discrete(3) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Distance and speed, its own and the other's."""
        return self._sees[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Brake, keep, accelerate."""
        return self._does[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Draw where both are and how fast."""
        dice = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.far = dice.uniform(25.0, 50.0, 2)
        self.speed = dice.uniform(6.0, 12.0, 2)
        self.steps = 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Half a second for both."""
        force = np.array([FORCE[int(actions[agent])] for agent in self.possible_agents])
        before = self.far
        self.speed = np.clip(self.speed + force * TICK, 0.0, FASTEST)
        self.far = self.far - self.speed * TICK
        self.steps += 1
        there, here = before > -LENGTH, self.far > -LENGTH
        crash = bool((np.abs(self.far) < LENGTH).all())
        paid = np.where(there, WAITING, 0.0) + np.where(there & ~here, ACROSS - WAITING, 0.0)
        paid = np.full(2, CRASHED) if crash else paid
        over, late = crash or not here.any(), self.steps == STEPS
        acted = self.agents
        told = (
            self._look(),
            {agent: float(one) for agent, one in zip(acted, paid, strict=True)},
            dict.fromkeys(acted, over),
            dict.fromkeys(acted, late and not over),
            {agent: {"crash": crash} for agent in acted},
        )
        self.agents = [] if over or late else acted
        return told

    def render(self) -> np.ndarray:
        """Both roads from above, two pixels a metre."""
        drawn = np.full((200, 200, 3), 150, np.uint8)
        drawn[:, 94:106] = drawn[94:106, :] = 90
        places = {"north": (-self.far[0], 0.0), "east": (0.0, -self.far[1])}
        for agent, colour in (("north", (70, 90, 200)), ("east", (200, 80, 60))):
            row, column = (int(np.clip(100 + 2 * place, 5, 194)) for place in places[agent])
            drawn[row - 4 : row + 4, column - 4 : column + 4] = colour
        return drawn

    def _look(self) -> ByAgent:
        far, speed = np.clip(self.far / FAR, -2.0, 2.0), self.speed / FASTEST
        seen = np.stack([far, speed], 1)
        return {
            agent: np.concatenate([seen[n], seen[1 - n]]).astype(np.float32)
            for n, agent in enumerate(self.possible_agents)
        }
