"""An episode people can look at: the policy acts in an environment that draws, and the pictures become a GIF.

Only what renders `rgb_array` is filmed. A picture is no reason to lose a run: whoever calls tells what went wrong and
goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from arena_runner.policies import spaces
from arena_runner.rollouts.boxes import Boxed
from arena_runner.rollouts.together import open_parallel
from arena_runner.rollouts.worlds import Arrays, stacked, with_mask

LONGEST, PICTURES = 2000, 250
"""steps that are filmed, and pictures that are kept of them"""
SIDE = 320
"""pixels of a picture's shorter side at most"""
FPS = 30
COLOURS = 64

Pixels = NDArray[np.uint8]
Act = Callable[[Arrays], NDArray[Any]]
"""what one environment shows → an action (1, k); remembers what a recurrent policy has to"""


@dataclass(frozen=True, slots=True)
class Shot:
    """What one step shows."""

    pixels: Pixels
    seen: Arrays
    reward: float = 0.0
    over: bool = False


class Camera(Protocol):
    """One environment that draws."""

    fps: float

    def begin(self, seed: int) -> Shot:
        """Must begin the episode of this seed."""
        ...

    def step(self, actions: NDArray[Any]) -> Shot:
        """One action (1, k)."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(frozen=True, slots=True)
class Film:
    """An episode that was played to its end, or as long as it was filmed."""

    pictures: tuple[Pixels, ...]
    """of every so many steps"""
    every: int
    steps: int
    paid: float
    fps: float


class Registered:
    """A camera for an id that Gymnasium registers."""

    def __init__(self, gym_id: str, options: Mapping[str, Any]) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._env = gymnasium.make(gym_id, render_mode="rgb_array", disable_env_checker=True, **options)
        self._spaces = spaces.read(self._env.observation_space, self._env.action_space)
        self.fps = float(self._env.metadata.get("render_fps") or FPS)

    def begin(self, seed: int) -> Shot:
        """Reset and draw."""
        return self._shot(*self._env.reset(seed=seed))

    def step(self, actions: NDArray[Any]) -> Shot:
        """Step and draw."""
        answer = self._env.step(spaces.decode(self._spaces.does, actions)[0])
        return self._shot(answer[0], answer[4], float(answer[1]), over=bool(answer[2] or answer[3]))

    def close(self) -> None:
        """Close it."""
        self._env.close()

    def _shot(self, seen: Any, info: Mapping[str, Any], reward: float = 0.0, *, over: bool = False) -> Shot:
        drawn = thinned(np.asarray(self._env.render(), dtype=np.uint8))
        return Shot(drawn, stacked(self._spaces, [with_mask(seen, info)]), reward, over)


class Game:
    """A camera for one of PettingZoo's games."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._world = open_parallel(name, 1, {**options, "render_mode": "rgb_array"}, once=True)
        self._env = self._world.envs[0]
        self.draws = "rgb_array" in self._env.metadata.get("render_modes", ())
        self.fps = float(self._env.metadata.get("render_fps") or FPS)

    def begin(self, seed: int) -> Shot:
        """Reset and draw."""
        seen = self._world.reset(lambda *_: seed)
        return Shot(self._picture(), seen)

    def step(self, actions: NDArray[Any]) -> Shot:
        """Step and draw."""
        told = self._world.step(actions)
        return Shot(self._picture(), told.seen, float(told.paid[0]), bool(told.ended[0]))

    def close(self) -> None:
        """Close it."""
        self._world.close()

    def _picture(self) -> Pixels:
        return thinned(np.asarray(self._env.render(), dtype=np.uint8))


class Custom:
    """A camera for an environment in a sandbox."""

    def __init__(self, world: Boxed) -> None:
        self._world = world
        self.fps = world.fps or float(FPS)

    def begin(self, seed: int) -> Shot:
        """Make one more that draws, and reset it."""
        return Shot(**self._world.film(seed, begin=True))

    def step(self, actions: NDArray[Any]) -> Shot:
        """Step and draw."""
        return Shot(**self._world.film(0, begin=False, action=actions))

    def close(self) -> None:
        """End its process."""
        self._world.close()


def of_game(name: str, options: Mapping[str, Any]) -> Camera | None:
    """A camera for a game that can be drawn, by what it says of itself."""
    made = Game(name, options)
    if made.draws:
        return made
    made.close()
    return None


def of_registered(gym_id: str, options: Mapping[str, Any]) -> Camera | None:
    """The same for an id that Gymnasium registers."""
    entry: Any = gymnasium.envs.registration.load_env_creator(str(gymnasium.spec(gym_id).entry_point))
    modes = (getattr(entry, "metadata", None) or {}).get("render_modes", ())
    return Registered(gym_id, options) if "rgb_array" in modes else None


def film(camera: Camera, act: Act, seed: int, longest: int | None = None) -> Film:
    """Play an episode in front of the camera; when it is long, ever fewer of its pictures are kept."""
    with closing(camera):
        shot = camera.begin(seed)
        pictures, every, steps, paid = [shot.pixels], 1, 0, 0.0
        while not shot.over and steps < (longest or LONGEST):
            shot = camera.step(act(shot.seen))
            steps, paid = steps + 1, paid + shot.reward
            if steps % every == 0:
                pictures.append(shot.pixels)
            if len(pictures) > PICTURES:
                pictures, every = pictures[::2], every * 2
        return Film(tuple(pictures), every, steps, paid, camera.fps)


def thinned(pixels: Pixels) -> Pixels:
    """A large picture made small by means of squares, so that thin lines stay."""
    from PIL import Image

    every = math.ceil(min(pixels.shape[:2]) / SIDE)
    return pixels if every <= 1 else np.asarray(Image.fromarray(pixels).reduce(every))


def save(made: Film, path: Path) -> None:
    """Write it as an endless GIF, at the environment's own speed as far as viewers can show it."""
    from PIL import Image

    images = [Image.fromarray(one).quantize(COLOURS, dither=Image.Dither.NONE) for one in made.pictures]
    lasts = max(20, round(1000 * made.every / made.fps))  # faster than that, viewers show at will
    path.parent.mkdir(parents=True, exist_ok=True)
    images[0].save(path, save_all=True, append_images=images[1:], duration=lasts, loop=0, optimize=True)
