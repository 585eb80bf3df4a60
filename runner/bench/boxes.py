"""What the sandbox costs a step: custom code in sandboxed processes against the same code in this one.

    python runner/bench/boxes.py [--rows 16] [--rounds 5]

Both worlds stand side by side and are stepped in turns, so that a busy machine slows both. CPU seconds are of all
processes together, wall time is what a training loop waits.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from arena_gitops.spec.job import EnvironmentInput
from arena_runner.policies.spaces import Choice
from arena_runner.ports import Materials
from arena_runner.rollouts.boxes import Boxed, opened
from arena_runner.rollouts.worlds import Plain, World, seeds

MERGE = Path(__file__).resolve().parents[2] / "examples" / "policies" / "environments" / "merge"
CASES = {
    "merge (example)": ("merge", "MergeEnv"),
    "CartPole": ("pole", "Pole"),
    "a picture of 84x84x4": ("screen", "Screen"),
}
OWN = {
    "pole": "from gymnasium.envs.classic_control import CartPoleEnv\nclass Pole(CartPoleEnv): ...\n",
    "screen": """
import gymnasium as gym
import numpy as np
class Screen(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.seen = np.zeros((84, 84, 4), np.uint8)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen, {}
    def step(self, action):
        return self.seen, 0.0, False, False, {}
""",
}


def main() -> None:
    """One line for every environment and number of processes."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=16)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=400)
    given = options.parse_args()
    print(
        f"{given.rows} environments, {given.rounds} rounds of {given.steps} vector steps, load {os.getloadavg()[0]:.1f}"
    )
    for name, (module, cls) in CASES.items():
        for processes in (1, 2):
            print(compared(name, module, cls, processes, given))


def compared(name: str, module: str, cls: str, processes: int, given: Any) -> str:
    """Medians of both, in microseconds of an environment's step."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"arena-bench-{os.getpid()}"  # noqa: S108 - a benchmark's scratch
    folder.mkdir(exist_ok=True)
    source = OWN.get(module) or (MERGE / "merge.py").read_text()
    (folder / f"{module}.py").write_text(source)
    sys.path.insert(0, str(folder))
    digest = "sha256:" + hashlib.sha256(source.encode()).hexdigest()
    environment = EnvironmentInput(files={f"{module}.py": digest}, entrypoint=f"{module}:{cls}")
    ordinary = Plain(getattr(importlib.import_module(module), cls), given.rows)
    with opened(environment, Materials(workdir=folder, environment=folder), processes=processes) as found:
        boxed = Boxed(found, given.rows)
        figures: dict[str, list[tuple[float, float]]] = {"here": [], "boxed": []}
        for world in (ordinary, boxed):
            world.reset(seeds(1, 1, "episode"))
            stepped(world, 50)
        for _ in range(given.rounds):
            for kind, world in (("here", ordinary), ("boxed", boxed)):
                figures[kind].append(timed(world, given.steps))
        boxed.close()
    cpu, wall = (
        {k: statistics.median(f[n] for f in found) / given.rows * 1e6 for k, found in figures.items()}
        for n in (0, 1)
    )
    return (
        f"{name}, {processes} process{'es' if processes > 1 else ''}: CPU us/step {cpu['here']:.1f} here, {cpu['boxed']:.1f} boxed "
        f"(+{cpu['boxed'] - cpu['here']:.1f}, {cpu['boxed'] / cpu['here']:.2f}x); wall {wall['here']:.1f} here, {wall['boxed']:.1f} boxed"
    )


def timed(world: World, steps: int) -> tuple[float, float]:
    """CPU and wall seconds of one vector step."""
    cpu, wall = everybody(), time.monotonic()
    stepped(world, steps)
    return (everybody() - cpu) / steps, (time.monotonic() - wall) / steps


def stepped(world: World, steps: int) -> None:
    """Random actions."""
    dice = np.random.default_rng(0)
    does = world.spaces.does
    assert isinstance(does, Choice)
    for _ in range(steps):
        world.step(dice.integers(0, does.sizes[0], (world.rows, 1)))


def everybody() -> float:
    """CPU seconds of this process and of all below it."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True)))


if __name__ == "__main__":
    main()
