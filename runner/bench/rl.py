"""M12: CPU seconds per counted environment step of a population of policies, beside AgileRL and stable-baselines3.

    python runner/bench/rl.py [CASE …] [--agilerl PYTHON] [--repeats 3]

Every side runs in fresh processes, in turns, one thread each; only training is timed (imports and construction are
not), with its evaluation and evolution where the trainer has them. Networks, batches, train frequency and evaluation
episodes are equal; stable-baselines3 has no population and no layer norm: its cost per step is that of one member, who is
judged as often. Whether they learn is `curves.py`'s question.
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
Document = dict[str, Any]
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
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
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
judge = make_vec_env(env, n_envs=each, seed=1)
class Judged(BaseCallback):
    due = training["evo_steps"]
    def _on_step(self):
        if self.num_timesteps >= self.due:
            self.due += training["evo_steps"]
            evaluate_policy(self.model, judge, n_eval_episodes=each)
        return True
began = time.process_time()
model.learn(training["max_steps"], callback=Judged())
print(json.dumps({"steps": training["max_steps"], "seconds": time.process_time() - began}))
"""


def manifest(case: dict[str, Any], env: str, members: int = MEMBERS) -> Document:
    """One document that both population trainers read; only learning rates evolve, so that all train alike."""
    return {
        **case,
        "environment": {"name": env, "num_envs": EACH, "sync": True},
        "training": {**case["training"], "pop_size": members, "hpo": True, "eval_loop": 1},
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
    options.add_argument("cases", nargs="*", default=[*CASES, "population"], help="DQN PPO population")
    options.add_argument("--ours", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.ours:
        print(json.dumps(ours(json.loads(chosen.ours))))
        return
    print("| case | side | steps / CPU-s | ours is |\n|---|---|---|---|")
    for name in chosen.cases:
        if name == "population":
            scaling(chosen.repeats)
            continue
        for env in ("CartPole-v1", "LunarLander-v3"):
            show(f"{name} {env}", sides(CASES[name], env, chosen.agilerl), chosen.repeats)


def scaling(repeats: int) -> None:
    """DQN and PPO on CartPole with more and more members; a step is one of any member."""
    for name, case in CASES.items():
        for members in (1, 2, 4, 8, 16):
            document = judged(manifest(case, "CartPole-v1", members))
            show(f"{name} CartPole-v1, population {members}", {"ours": ours_command(document)}, repeats)


def sides(case: dict[str, Any], env: str, agilerl: str | None) -> dict[str, list[str]]:
    """Side → its command."""
    document = manifest(case, env)
    found = {"ours": ours_command(judged(document))}
    if agilerl:
        found["agilerl"] = [agilerl, "-c", AGILERL, json.dumps(document)]
    found["stable-baselines3"] = [sys.executable, "-c", SB3, json.dumps(case), env, str(EACH)]
    return found


def judged(document: Document) -> Document:
    """With as many episodes of evaluation as AgileRL takes, whose number is a key of ours alone."""
    return {**document, "training": {**document["training"], "eval_episodes": EACH, "test_episodes": 0}}


def ours_command(document: Document) -> list[str]:
    """Our side of it, in a process of its own."""
    return [sys.executable, __file__, "--ours", json.dumps(document)]


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


def ours(document: Document) -> dict[str, Any]:
    """A whole run with states, exports and evolution, as a worker would do it."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
    from labs import Recorder

    class Clocked(Recorder):
        """Knows when the last thing happened that others do too: they make no film at the end."""

        trained = 0.0

        def emit(self, event: Any, files: Any = None) -> None:
            super().emit(event, files)
            if event.type != "replay":
                self.trained = time.process_time()

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
        ports = Clocked()
        began = time.process_time()
        finished = train(job, Materials(workdir=Path(folder)), ports)
        spent = ports.trained - began
    if finished.state != "completed":
        raise SystemExit(finished.message)
    last = {event.member: event.step for event in ports.of("progress")}
    curve = [(event.step, event.fitness) for event in ports.of("evaluation")]
    return {"steps": sum(last.values()), "seconds": spent, "curve": curve}


if __name__ == "__main__":
    main()
