"""Custom environments as a worker has them: files in a folder, and a job that names them."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager

from playground import job_of

from arena_gitops.spec.job import EnvironmentInput, JobInputs
from arena_runner.ports import Materials
from arena_runner.rollouts.boxes import Boxed, opened

AGENTS = """
import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv


class Two(ParallelEnv):
    metadata = {"name": "two"}
    possible_agents = ["left", "right"]

    def __init__(self):
        self.sees = {agent: gym.spaces.Box(0, 1, (2,), np.float32) for agent in self.possible_agents}
        self.does = {agent: gym.spaces.Discrete(2) for agent in self.possible_agents}

    def observation_space(self, agent):
        return self.sees[agent]

    def action_space(self, agent):
        return self.does[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), 5
        return self.look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.left -= 1
        seen, over, acted = self.look(), self.left == 0, list(self.agents)
        if over:
            self.agents = []
        told = ({agent: value for agent in acted} for value in (1.0, over, False, {}))
        return (seen, *told)

    def look(self):
        return {agent: np.zeros(2, np.float32) for agent in self.agents}
"""

ROOM = """
import gymnasium as gym
import numpy as np


class Room(gym.Env):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, length=6, render_mode=None):
        self.length, self.render_mode = length, render_mode
        self.observation_space = gym.spaces.Dict(
            place=gym.spaces.Box(-1, 1, (2,), np.float64),
            door=gym.spaces.Discrete(3, start=1),
            picture=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        )
        self.action_space = gym.spaces.Discrete(3, start=-1)
        self.lock = __import__("threading").Lock()  # nothing here has to be pickled

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = self.np_random.random(2), self.length
        return self.look(), {"action_mask": np.array([1, 1, self.left % 2], np.int8)}

    def step(self, action):
        self.left -= 1
        self.at = np.clip(self.at + 0.1 * float(action) + 0.01 * self.np_random.random(2), -1, 1)
        reward, over = float(self.at.sum()), bool(self.at[0] > 0.95)
        return self.look(), reward, over, self.left == 0, {"action_mask": np.array([1, 1, self.left % 2], np.int8)}

    def look(self):
        return {
            "place": self.at.copy(),
            "door": np.int64(1 + self.left % 3),
            "picture": np.full((8, 8, 3), self.left, np.uint8),
        }

    def render(self):
        drawn = np.zeros((40, 60, 3), np.uint8)
        drawn[:, : 1 + int(59 * (self.at[0] + 1) / 2)] = 200
        return drawn
"""
"""One that shows a vector, a category and a picture, and masks its actions."""


def environment_of(folder, source, entrypoint="env:Room", **more):
    """Write the file; the environment as a job names it."""
    folder.mkdir(exist_ok=True)
    (folder / "env.py").write_text(source)
    digest = "sha256:" + hashlib.sha256(source.encode()).hexdigest()
    return EnvironmentInput(
        address="environment/custom", files={"env.py": digest}, entrypoint=entrypoint, **more
    )


def custom_job(which, environment, /, **sections):
    """The job of a tiny run on it."""
    job = job_of(which, **{"environment": {"name": "custom", "num_envs": 4}, **sections})
    return job.model_copy(update={"inputs": JobInputs(environment=environment)})


@contextmanager
def boxed(
    folder,
    source,
    rows,
    *,
    entrypoint="env:Room",
    longest=None,
    once=False,
    config=None,
    several=False,
    **more,
):
    """A world of it."""
    environment = environment_of(folder, source, entrypoint, env_config=config or {}, multi_agent=several)
    with opened(
        environment, Materials(workdir=folder, environment=folder), **{"processes": 1, **more}
    ) as found:
        world = Boxed(found, rows, longest, once=once)
        try:
            yield world
        finally:
            world.close()
