"""M12: CPU seconds per counted environment step of a population of policies, beside AgileRL and stable-baselines3.

    python runner/bench/rl.py [--agilerl PYTHON] [--repeats 3] [--learns]

Every side runs in fresh processes, in turns, one thread each; only training is timed (imports and construction are
not), with its evaluation and evolution where the trainer has them. Networks, batches, train frequency and evaluation
episodes are equal; stable-baselines3 has no population and no layer norm: its cost per step is that of one member.
`--learns` instead shows in how many steps DQN and PPO reach 475 on CartPole, over ten seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DQN: dict[str, Any] = {
    "algorithm": {
        "name": "DQN", "batch_size": 128, "lr": 6.3e-4, "learn_step": 4, "gamma": 0.99, "tau": 0.001, "double": False,
    },
    "network": {"latent_dim": 128, "encoder_config": {"hidden_size": [128]}, "head_config": {"hidden_size": [128]}},
    "replay_buffer": {"max_size": 100_000},
    "training": {"max_steps": 4000, "evo_steps": 2000, "eps_start": 1.0, "eps_end": 0.1, "eps_decay": 0.99},
}  # fmt: skip
PPO: dict[str, Any] = {
    "algorithm": {"name": "PPO", "batch_size": 128, "lr": 1e-3, "learn_step": 512, "update_epochs": 4},
    "network": {
        "latent_dim": 64,
        "encoder_config": {"hidden_size": [64]},
        "head_config": {"hidden_size": [64]},
    },
    "training": {"max_steps": 8192, "evo_steps": 4096},
}
CASES = {"DQN": DQN, "PPO": PPO}
LEARNS = {"DQN": {**DQN, "algorithm": {**DQN["algorithm"], "tau": 0.05}}, "PPO": PPO}
"""For the question of how soon: a target that follows by 0.001 in each of few updates stays behind for longer than that."""
MEMBERS, EACH = 4, 16

AGILERL = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
torch.set_num_threads(1)
from agilerl.training.trainer import LocalTrainer
manifest = json.loads(sys.argv[1])
trainer = LocalTrainer.from_manifest(manifest, device="cpu")
began = time.process_time()
trainer.train(verbose=False)
spent = time.process_time() - began
steps = manifest["training"]["max_steps"] * manifest["training"]["pop_size"]
print(json.dumps({"steps": steps, "seconds": spent}))
"""

SB3 = """
import json, sys, time
import torch
torch.set_num_threads(1)
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
case, env, each = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
knobs, training = case["algorithm"], case["training"]
world = make_vec_env(env, n_envs=each, seed=0)
size = case["network"]["latent_dim"]
shared = {"learning_rate": knobs["lr"], "batch_size": knobs["batch_size"], "device": "cpu",
          "policy_kwargs": {"net_arch": [size] * 3}}
if knobs["name"] == "DQN":
    model = DQN("MlpPolicy", world, train_freq=1, gradient_steps=each // knobs["learn_step"], learning_starts=128,
                target_update_interval=1, tau=knobs["tau"], **shared)
else:
    model = PPO("MlpPolicy", world, n_steps=knobs["learn_step"] // each, n_epochs=knobs["update_epochs"], **shared)
model.learn(each * 16)
began = time.process_time()
model.learn(training["max_steps"], reset_num_timesteps=False)
print(json.dumps({"steps": training["max_steps"], "seconds": time.process_time() - began}))
"""


def manifest(case: dict[str, Any], env: str, members: int = MEMBERS, **training: Any) -> dict[str, Any]:
    """One document that both population trainers read; only learning rates evolve, so that all train alike."""
    return {
        **case,
        "environment": {"name": env, "num_envs": EACH, "sync": True},
        "training": {**case["training"], "pop_size": members, "hpo": True, "eval_loop": 1, **training},
        "mutation": {
            "probabilities": {
                "no_mut": 0.5, "rl_hp_mut": 0.5, "arch_mut": 0.0, "new_layer": 0.0, "params_mut": 0.0, "act_mut": 0.0,
            },
            "rl_hp_selection": {"lr": {"min": 1e-4, "max": 1e-2}},
            "rand_seed": 42,
        },
        "tournament_selection": {"tournament_size": 2, "elitism": True},
    }  # fmt: skip


def main() -> None:
    """Run the sides in turns and print the table."""
    options = argparse.ArgumentParser()
    peer = Path(__file__).parents[2] / ".venv-agilerl" / "bin" / "python"
    options.add_argument(
        "--agilerl", default=str(peer) if peer.exists() else None, help="python that has agilerl 2.58"
    )
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--learns", action="store_true")
    options.add_argument("--ours", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.ours:
        print(json.dumps(ours(json.loads(chosen.ours))))
        return
    if chosen.learns:
        learns()
        return
    print("| case | side | steps / CPU-s | ours is |\n|---|---|---|---|")
    for env in ("CartPole-v1", "LunarLander-v3"):
        for name, case in CASES.items():
            show(f"{name} {env}", sides(case, env, chosen.agilerl), chosen.repeats)
    for members in (1, 2, 4, 8, 16):
        document = {**manifest(DQN, "CartPole-v1", members), "eval_episodes": EACH}
        show(f"DQN CartPole-v1, population {members}", {"ours": of_ours(document)}, chosen.repeats)


def sides(case: dict[str, Any], env: str, agilerl: str | None) -> dict[str, list[str]]:
    """Side → its command."""
    document = manifest(case, env)
    found = {"ours": of_ours({**document, "eval_episodes": EACH})}
    if agilerl:
        found["agilerl"] = [agilerl, "-c", AGILERL, json.dumps(document)]
    found["stable-baselines3"] = [sys.executable, "-c", SB3, json.dumps(case), env, str(EACH)]
    return found


def of_ours(document: dict[str, Any]) -> list[str]:
    """Our command; the episodes of an evaluation are a key of ours alone."""
    training = {**document["training"], "eval_episodes": document["eval_episodes"], "test_episodes": 0}
    body = {k: v for k, v in document.items() if k != "eval_episodes"} | {"training": training}
    return [sys.executable, __file__, "--ours", json.dumps(body)]


def show(label: str, commands: dict[str, list[str]], repeats: int) -> None:
    """Medians of a few rounds in turns."""
    rates: dict[str, list[float]] = {side: [] for side in commands}
    for _ in range(repeats):
        for side, command in commands.items():
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            if done.returncode:
                print(done.stderr[-800:], file=sys.stderr)
                continue
            said = json.loads(done.stdout.splitlines()[-1])
            rates[side].append(said["steps"] / said["seconds"])
    mine = statistics.median(rates["ours"])
    for side, measured in rates.items():
        if measured:
            rate = statistics.median(measured)
            print(f"| {label} | {side} | {rate:,.0f} | {mine / rate:.1f}x |", flush=True)


def ours(document: dict[str, Any]) -> dict[str, float]:
    """A whole run with states, exports and evolution, as a worker would do it."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
    from labs import Recorder

    from arena_gitops.spec.job import JobInputs, JobSpec
    from arena_gitops.spec.manifest import parse_manifest
    from arena_runner.ports import Materials
    from arena_runner.train import train

    normal = parse_manifest(document).manifest.normal()
    job = JobSpec(
        run_id="bench", segment=0, experiment="bench", fingerprint="f", manifest=normal, inputs=JobInputs(),
        model=None, seed=document["mutation"]["rand_seed"], tier="local",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        ports = Recorder()
        began = time.process_time()
        finished = train(job, Materials(workdir=Path(folder)), ports)
        spent = time.process_time() - began
    if finished.state != "completed":
        raise SystemExit(finished.message)
    last = {event.member: event.step for event in ports.of("progress")}
    fitness = [(event.step, event.fitness) for event in ports.of("evaluation")]
    reached = [step for step, value in fitness if value >= 475]
    return {"steps": sum(last.values()), "seconds": spent, "reached": min(reached, default=0)}


def learns() -> None:
    """Ten seeds of each, until the first evaluation of 16 episodes at or above 475."""
    for name, case in LEARNS.items():
        budget = 60_000 if name == "DQN" else 100_000
        told = []
        for seed in range(10):
            document = manifest(case, "CartPole-v1", max_steps=budget, target_score=475.0, evo_steps=2000)
            document["mutation"]["rand_seed"] = seed
            done = subprocess.run(
                of_ours({**document, "eval_episodes": EACH}), capture_output=True, text=True, check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            told.append(json.loads(done.stdout.splitlines()[-1]))
            print(name, seed, told[-1], flush=True)
        good = [one for one in told if one["reached"]]
        print(f"{name}: {len(good)} of 10 reached 475 within {budget} steps of a member")


if __name__ == "__main__":
    main()
