"""Whether policies learn: mean return of whole episodes after so many environment steps, beside stable-baselines3.

    python runner/bench/curves.py [LESSON …] [--seeds 10] [--peer-seeds 1] [--minutes 60]
    python runner/bench/curves.py --draw

A lesson is an algorithm on an environment with the return it should reach. Both sides have one member, the same knobs
(rl-zoo's where it has some, else the bench's) and as many steps; networks are each side's own kind. Every run is one
process of one thread. A run of ours ends where it has reached its goal, unless its lesson is drawn. Runs are appended to
`results/policies.csv` as they end, and those that are there already are not run again, so it can be stopped at any time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from rl import Document, ours_command

RESULTS = Path(__file__).with_name("results")
CURVES, FIGURE = RESULTS / "policies.csv", RESULTS / "policies.png"
NETWORK = {"latent_dim": 64, "encoder_config": {"hidden_size": [64]}, "head_config": {"hidden_size": [64]}}
WIDE = {"latent_dim": 128, "encoder_config": {"hidden_size": [128]}, "head_config": {"hidden_size": [128]}}


@dataclass(frozen=True)
class Lesson:
    """One algorithm on one environment."""

    env: str
    each: int
    """environments side by side"""
    budget: int
    every: int
    """steps between evaluations of ten episodes"""
    algorithm: dict[str, Any]
    goal: float | None = None
    training: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=lambda: NETWORK)
    peer: dict[str, Any] = field(default_factory=dict)
    """what stable-baselines3 calls its knobs; empty: it has no such algorithm"""


LESSONS = {
    "PPO CartPole": Lesson(
        "CartPole-v1", 8, 100_000, 4000, goal=475,
        algorithm={"name": "PPO", "lr": 1e-3, "learn_step": 256, "batch_size": 256, "update_epochs": 20, "gamma": 0.98,
                   "gae_lambda": 0.8, "ent_coef": 0.0},
        peer={"learning_rate": 1e-3, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98,
              "gae_lambda": 0.8, "ent_coef": 0.0},
    ),
    "DQN CartPole": Lesson(
        "CartPole-v1", 16, 60_000, 2000, goal=475, network=WIDE,
        algorithm={"name": "DQN", "lr": 6.3e-4, "batch_size": 128, "learn_step": 4, "tau": 0.05, "double": False},
        training={"eps_end": 0.1, "eps_decay": 0.99},
        peer={"learning_rate": 6.3e-4, "batch_size": 128, "train_freq": 1, "gradient_steps": 4, "tau": 0.05,
              "target_update_interval": 1, "learning_starts": 128, "buffer_size": 100_000,
              "exploration_fraction": 0.06, "exploration_final_eps": 0.1, "policy_kwargs": {"net_arch": [128, 128, 128]}},
    ),
    "PPO LunarLander": Lesson(
        "LunarLander-v3", 16, 1_000_000, 50_000, goal=200,
        algorithm={"name": "PPO", "lr": 3e-4, "learn_step": 16_384, "batch_size": 64, "update_epochs": 4,
                   "gamma": 0.999, "gae_lambda": 0.98, "ent_coef": 0.01},
        peer={"learning_rate": 3e-4, "n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gamma": 0.999,
              "gae_lambda": 0.98, "ent_coef": 0.01},
    ),
    "DQN LunarLander": Lesson(
        "LunarLander-v3", 4, 100_000, 5000, goal=200, network=WIDE,
        algorithm={"name": "DQN", "lr": 6.3e-4, "batch_size": 128, "learn_step": 1, "tau": 0.005},
        training={"eps_end": 0.1, "eps_decay": 0.99923},
        peer={"learning_rate": 6.3e-4, "batch_size": 128, "train_freq": 1, "gradient_steps": 4, "tau": 1.0,
              "target_update_interval": 250, "learning_starts": 128, "buffer_size": 50_000,
              "exploration_fraction": 0.12, "exploration_final_eps": 0.1, "policy_kwargs": {"net_arch": [256, 256]}},
    ),
    "TD3 Pendulum": Lesson(
        "Pendulum-v1", 1, 20_000, 2000, goal=-200,
        algorithm={"name": "TD3", "lr_actor": 1e-3, "lr_critic": 1e-3, "batch_size": 256, "learn_step": 1,
                   "gamma": 0.98, "O_U_noise": False},
        training={"learning_delay": 10_000},
        peer={"learning_rate": 1e-3, "batch_size": 256, "train_freq": 1, "gradient_steps": 1, "gamma": 0.98,
              "learning_starts": 10_000, "buffer_size": 200_000, "noise": 0.1,
              "policy_kwargs": {"net_arch": [64, 64, 64]}},
    ),
    "DDPG Pendulum": Lesson(
        "Pendulum-v1", 1, 20_000, 2000, goal=-200,
        algorithm={"name": "DDPG", "lr_actor": 1e-3, "lr_critic": 1e-3, "batch_size": 256, "learn_step": 1, "tau": 0.005,
                   "gamma": 0.98, "O_U_noise": False, "policy_freq": 1},
        training={"learning_delay": 10_000},
        peer={"learning_rate": 1e-3, "batch_size": 256, "train_freq": 1, "gradient_steps": 1, "gamma": 0.98,
              "learning_starts": 10_000, "buffer_size": 200_000, "noise": 0.1,
              "policy_kwargs": {"net_arch": [64, 64, 64]}},
    ),
    "IPPO simple_spread": Lesson(
        "mpe2.simple_spread_v3", 16, 200_000, 20_000,
        algorithm={"name": "IPPO", "lr": 1e-3, "learn_step": 2048, "batch_size": 512, "update_epochs": 4},
    ),
    "MADDPG simple_spread": Lesson(
        "mpe2.simple_spread_v3", 16, 100_000, 10_000,
        algorithm={"name": "MADDPG", "lr_actor": 1e-3, "lr_critic": 1e-3, "batch_size": 256, "learn_step": 16},
    ),
}  # fmt: skip

PEER = """
import json, sys, time, numpy, torch
torch.set_num_threads(1)
import stable_baselines3 as sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
name, env, each, budget, every, seed, knobs = json.loads(sys.argv[1])
world, judge = make_vec_env(env, n_envs=each, seed=seed), make_vec_env(env, n_envs=10, seed=1000 + seed)
sigma = knobs.pop("noise", None)
if sigma is not None:
    count = world.action_space.shape[0]
    knobs["action_noise"] = NormalActionNoise(numpy.zeros(count), sigma * numpy.ones(count))
model = getattr(sb3, name)("MlpPolicy", world, device="cpu", seed=seed, **knobs)
curve = []
class Judged(sb3.common.callbacks.BaseCallback):
    due = every
    def _on_step(self):
        if self.num_timesteps >= self.due:
            self.due += every
            curve.append([self.num_timesteps, float(evaluate_policy(self.model, judge, n_eval_episodes=10)[0])])
        return True
began = time.process_time()
model.learn(budget, callback=Judged())
print(json.dumps({"curve": curve, "seconds": time.process_time() - began}))
"""


def main() -> None:
    """Run what is not there yet, or draw what is."""
    options = argparse.ArgumentParser()
    options.add_argument("lessons", nargs="*", default=[*LESSONS])
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--peer-seeds", type=int, default=1)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--draw", action="store_true")
    chosen = options.parse_args()
    if chosen.draw:
        draw()
        return
    until = time.monotonic() + 60 * chosen.minutes
    known = {(row["lesson"], row["side"], int(row["seed"])) for row in rows()}
    for name in chosen.lessons:
        for side, seed in sides(LESSONS[name], chosen.seeds, chosen.peer_seeds):
            if (name, side, seed) not in known:
                one(name, side, seed, until - time.monotonic())


def sides(lesson: Lesson, seeds: int, peers: int) -> Iterator[tuple[str, int]]:
    """Whose runs a lesson has, the peer's between ours."""
    for seed in range(max(seeds, peers)):
        if seed < seeds:
            yield "ours", seed
        if seed < peers and lesson.peer:
            yield "stable-baselines3", seed


def one(name: str, side: str, seed: int, seconds: float) -> None:
    """One run, appended; what the time is over for is left."""
    lesson = LESSONS[name]
    if side == "ours":
        command = ours_command(document(lesson, seed))
    else:
        told = [
            name.split(maxsplit=1)[0],
            lesson.env,
            lesson.each,
            lesson.budget,
            lesson.every,
            seed,
            lesson.peer,
        ]
        command = [sys.executable, "-c", PEER, json.dumps(told)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=quiet, timeout=max(seconds, 1)
        )
    except subprocess.TimeoutExpired:
        print(name, side, seed, "no time left", flush=True)
        return
    if done.returncode:
        print(name, side, seed, done.stderr[-800:], file=sys.stderr)
        return
    said = json.loads(done.stdout.splitlines()[-1])
    append(name, side, seed, said)
    best = max(value for _, value in said["curve"])
    print(
        f"{name}, {side}, seed {seed}: best {best:.0f}, at the end {said['curve'][-1][1]:.0f}, {said['seconds']:.0f} CPU-s",
        flush=True,
    )


def document(lesson: Lesson, seed: int) -> Document:
    """A run of one member without evolution; it ends at its goal."""
    training = {
        "max_steps": lesson.budget, "evo_steps": lesson.every, "pop_size": 1, "hpo": False, "eval_loop": 1,
        "eval_episodes": 10, "test_episodes": 0, **lesson.training,
    }  # fmt: skip
    if lesson.goal is not None and seed:
        training["target_score"] = lesson.goal
    return {
        "algorithm": lesson.algorithm,
        "network": lesson.network,
        "environment": {"name": lesson.env, "num_envs": lesson.each},
        "replay_buffer": {"max_size": 200_000},
        "training": training,
        "mutation": {"rand_seed": seed},
    }


def rows() -> list[dict[str, str]]:
    """What is known so far."""
    if not CURVES.exists():
        return []
    with CURVES.open(newline="") as file:
        return list(csv.DictReader(file))


def append(name: str, side: str, seed: int, said: dict[str, Any]) -> None:
    """A run's curve, and what it cost."""
    new = not CURVES.exists()
    with CURVES.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["lesson", "side", "seed", "step", "return", "cpu_seconds"])
        for step, value in said["curve"]:
            writer.writerow([name, side, seed, step, f"{value:.2f}", f"{said['seconds']:.1f}"])


def draw() -> None:
    """A small picture for each lesson: ours solid, the peer's dashed, the goal dotted."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    known = rows()
    names = [name for name in LESSONS if any(row["lesson"] == name for row in known)]
    figure, places = plt.subplots(2, -(-len(names) // 2), figsize=(4 * -(-len(names) // 2), 6), squeeze=False)
    for place, name in zip(places.flat, names, strict=False):
        for side, colour, style in (("stable-baselines3", "tab:orange", "--"), ("ours", "tab:blue", "-")):
            seeds = sorted(
                {int(row["seed"]) for row in known if (row["lesson"], row["side"]) == (name, side)}
            )
            for seed in seeds:
                mine = [r for r in known if (r["lesson"], r["side"], int(r["seed"])) == (name, side, seed)]
                steps, values = ([float(r[k]) for r in mine] for k in ("step", "return"))
                label = side if seed == seeds[0] else None
                place.plot(steps, values, style, color=colour, alpha=0.9 if seed == 0 else 0.4, label=label)
        if (goal := LESSONS[name].goal) is not None:
            place.axhline(goal, color="grey", linestyle=":")
        place.set_title(name, fontsize=10)
        place.set_xlabel("environment steps", fontsize=8)
        place.tick_params(labelsize=8)
        place.legend(fontsize=7)
    for place in places.flat[len(names) :]:
        place.axis("off")
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=90)


if __name__ == "__main__":
    main()
