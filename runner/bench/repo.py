"""Repositories of any size, made for measuring: `python runner/bench/repo.py FOLDER COUNT`.

COUNT resources: one project, twenty datasets and rewards, and experiments, each in a file of its own of about a
kilobyte, on ten manifests, with settings of its own; one in fifty is deployed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INPUTS = 20
MANIFESTS = 10
DEPLOYED = 50

ROWS = "question,answer\n" + "".join(f"What is {n} + {n}?,#### {2 * n}\n" for n in range(40))
REWARD = "def reward(question, answer, completion):\n    return float(answer.split()[-1] in completion)\n"
DATASET = """kind: Dataset
name: sums-{n}
description: Sums for practice, number {n}
owner: rl-team
category: reasoning
file: data/sums_{n}.csv
column_mapping: {{question: question, answer: answer}}
"""
MANIFEST = """algorithm:
  name: GRPO
  batch_size: 8
  group_size: 8
  lr: 1.0e-5
  beta: 0.001
  clip_coef: 0.2
  max_grad_norm: 1.0
  temperature: 1.0
  max_output_tokens: 128
environment: {{name: sums-{n}}}
training: {{max_steps: 20000, evo_steps: 10, pop_size: 4, eval_rows: 64, test_rows: 128}}
mutation:
  rand_seed: 42
  probabilities: {{no_mut: 0.2, rl_hp_mut: 0.8}}
  rl_hp_selection:
    lr: {{min: 1.0e-6, max: 1.0e-4}}
tournament_selection: {{tournament_size: 2, elitism: true}}
network:
  pretrained_model_name_or_path: smollm2-135m-instruct
  max_context_length: 512
  lora_config: {{lora_r: 16, lora_alpha: 32, target_modules: [q_proj, k_proj, v_proj, o_proj]}}
"""
EXPERIMENT = """# Experiment number {n} of a sweep over learning rates and lengths. What was learnt from the one before:
# a rate that is too high collapses the reward within a few hundred completions, one that is too low never
# leaves the base model's score. Kept as a file of its own, so that its history is its own.
kind: Experiment
name: sweep-{n}
description: Sweep of the learning rate on sums, number {n}; compare with its neighbours
owner: rl-team
labels: {{team: rl, sweep: lengths, number: "{n}"}}
manifest: ../manifests/grpo_{manifest}.yaml
set:
  algorithm.lr: {rate}e-6
  mutation.rand_seed: {n}
dataset: sums-{input}
reward: exact-{input}
tier: arena-medium
num_nodes: 1
budget: {{max_runtime: 6h, max_credits: 30}}
on_upstream_change: {{dataset: stale, reward: new_version, environment: new_version}}
"""
DEPLOYMENT = """kind: Deployment
name: serve-{n}
description: What sweep number {n} has learnt
experiment: sweep-{n}
checkpoint: best
gate: {{metric: eval/reward, min: 0.6}}
"""
STACK = """name: bench
project: sums
targets:
  prod: {platform: http, url: "http://127.0.0.1:9"}
"""


def write(root: Path, count: int) -> Path:
    """A committed repository of `count` resources."""
    files = {"arena.yaml": STACK, "experiments/project.yaml": "kind: Project\nname: sums\nllm_based: true\n"}
    for n in range(INPUTS):
        files[f"datasets/sums_{n}.yaml"] = DATASET.format(n=n)
        files[f"datasets/data/sums_{n}.csv"] = ROWS + f"number,{n}\n"
        files[f"rewards/exact_{n}.py"] = f'"""Reward {n}."""\n\n\n{REWARD}'
    for n in range(MANIFESTS):
        files[f"manifests/grpo_{n}.yaml"] = MANIFEST.format(n=n)
    left = count - 1 - 2 * INPUTS
    deployed = left // (DEPLOYED + 1)
    for n in range(left - deployed):
        text = EXPERIMENT.format(n=n, manifest=n % MANIFESTS, input=n % INPUTS, rate=1 + n % 90)
        files[f"experiments/sweep_{n}.yaml"] = text
    for n in range(deployed):
        files[f"deployments/serve_{n}.yaml"] = DEPLOYMENT.format(n=n)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "made"]):
        subprocess.run(["git", "-C", root, *identity, *command], check=True)
    return root


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
