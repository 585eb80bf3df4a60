"""A car on a ramp joins a lane of traffic before the ramp ends.

The lane's cars keep one speed, drawn for each episode, with gaps of different length between them. Our car brakes, keeps
its speed or accelerates, and chooses when to change lane. Lengths are in metres, times in seconds.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

TICK, CAR, FASTEST = 0.25, 5.0, 35.0
BRAKE, KEEP, ACCELERATE, CHANGE = range(4)
FORCE = {BRAKE: -4.0, KEEP: 0.0, ACCELERATE: 3.0, CHANGE: 0.0}
MERGED, CRASHED, STRANDED, WAITING = 10.0, -10.0, -5.0, -0.02
WATCHED = 3
"""cars of the lane that are seen: the nearest"""
FAR = 60.0


class MergeEnv(gym.Env[np.ndarray, np.int64]):
    """Sees what is left of the ramp, its own speed, and how far and how fast the nearest cars are."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, ramp: float = 150.0, cars: int = 8, render_mode: str | None = None) -> None:
        self.ramp, self.cars, self.render_mode = ramp, cars, render_mode
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2 + 2 * WATCHED,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the traffic; our car is at the beginning of the ramp."""
        super().reset(seed=seed)
        gaps = self.np_random.uniform(10.0, 40.0, self.cars)
        self.lane = np.cumsum(gaps + CAR) - self.np_random.uniform(60.0, 140.0)
        self.flow = float(self.np_random.uniform(18.0, 26.0))
        self.at, self.speed = 0.0, float(self.np_random.uniform(12.0, 20.0))
        self.merged = False
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A quarter of a second."""
        self.speed = float(np.clip(self.speed + FORCE[int(action)] * TICK, 0.0, FASTEST))
        self.at += self.speed * TICK
        self.lane = self.lane + self.flow * TICK
        reward, over = WAITING, False
        if int(action) == CHANGE:
            reward, over = self._change(), True
        elif self.at >= self.ramp:
            reward, over = STRANDED, True
        return self._look(), reward, over, False, {"merged": self.merged}

    def render(self) -> np.ndarray:
        """The road from above, three pixels a metre."""
        drawn = np.full((48, 480, 3), 90, np.uint8)
        drawn[23:25, :, :] = 220
        drawn[26:, int(min(self.ramp - self.at + 40, 159.0) * 3) :, :] = (60, 110, 60)
        for at in self.lane - self.at:
            self._draw(drawn, at, 8, (70, 90, 200))
        self._draw(drawn, 0.0, 8 if self.merged else 32, (230, 150, 40))
        return drawn

    def _change(self) -> float:
        """Join the lane: there must be room in front and behind, the more the greater the difference in speed."""
        room = CAR + 0.5 * abs(self.speed - self.flow)
        if (np.abs(self.lane - self.at) < room).any():
            return CRASHED
        self.merged = True
        return MERGED - 0.2 * abs(self.speed - self.flow)

    def _look(self) -> np.ndarray:
        apart = self.lane - self.at
        nearest = np.sort(apart[np.argsort(np.abs(apart))[:WATCHED]])
        own = [1.0 - 2.0 * min(self.at / self.ramp, 1.0), self.speed / FASTEST]
        faster = np.full(WATCHED, (self.flow - self.speed) / FASTEST)
        seen = np.concatenate([own, nearest / FAR, faster])
        return np.clip(seen, -1.0, 1.0).astype(np.float32)

    @staticmethod
    def _draw(drawn: np.ndarray, at: float, top: int, colour: tuple[int, int, int]) -> None:
        left = int((at + 40.0 - CAR / 2) * 3)
        if 0 <= left < drawn.shape[1]:
            drawn[top : top + 8, left : left + int(CAR * 3)] = colour
