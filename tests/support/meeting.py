"""A PettingZoo game of twelve steps: two agents on a line, one that chooses and one that glides, who should meet."""

from __future__ import annotations

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

STEPS = 12


class Meeting(ParallelEnv):
    """Both are paid the same; `leaves` ends it for the walker alone at that step."""

    def __init__(self, leaves=0):
        self.metadata = {"name": "meeting_v0"}
        self.possible_agents = ["walker", "glider"]
        self.leaves = leaves

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32)

    def action_space(self, agent):
        if agent == "walker":
            return gymnasium.spaces.Discrete(3, start=-1)
        return gymnasium.spaces.Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.at = np.random.default_rng(seed).uniform(-1, 1, 2)
        self.steps = 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        moved = 0.25 * actions["walker"], float(actions["glider"][0])
        self.at = np.clip(self.at + moved, -9, 9)
        self.steps += 1
        over = dict.fromkeys(self.agents, False)
        over["walker"] = self.steps == self.leaves
        cut = dict.fromkeys(self.agents, self.steps == STEPS)
        paid = {agent: -abs(self.at[0] - self.at[1]) for agent in self.agents}
        told = self._seen(), paid, over, cut, {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not over[agent] and not cut[agent]]
        return told

    def _seen(self):
        return {
            "walker": self.at.astype(np.float32),
            "glider": self.at[::-1].astype(np.float32),
        }
