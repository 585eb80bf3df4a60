"""Small repositories on disk, committed, for tests of whole commands."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

ROWS = "question,answer\n" + "".join(f"What is {n} + {n}?,#### {2 * n}\n" for n in range(40))
REWARD = "def reward(question, answer, completion):\n    return float(answer.split()[-1] in completion)\n"
DATASET = """kind: Dataset
name: sums
category: reasoning
file: ../data/sums.csv
column_mapping: {question: question, answer: answer}
"""
MANIFEST = """algorithm: {{name: GRPO, batch_size: 4, group_size: 4, lr: 1.0e-5, max_output_tokens: 16}}
environment: {{name: sums}}
training: {{max_steps: {steps}, evo_steps: 5, pop_size: 2, eval_rows: 8, test_rows: 8}}
mutation: {{rand_seed: {seed}}}
network: {{pretrained_model_name_or_path: tiny, max_context_length: 128}}
"""
EXPERIMENT = """kind: Experiment
name: {name}
description: {description}
manifest: ../manifests/{name}.yaml
dataset: sums
reward: sums
budget: {{max_runtime: 1h}}
"""
DEPLOYMENT = "kind: Deployment\nname: {name}\nexperiment: {name}\n"


def write(root: Path, *, stack: str, targets: str = "local: {platform: local}", **given: object) -> Path:
    """One dataset, one reward, and experiments `e0`, `e1`, …; the first is deployed. Not committed."""
    count, seed = int(str(given.get("experiments", 2))), int(str(given.get("seed", 1)))
    first = targets.partition(":")[0].strip()
    files = {
        "arena.yaml": f"name: {stack}\nproject: demo\ntargets:\n  {targets}\ndefault_target: {first}\n",
        "experiments/project.yaml": "kind: Project\nname: demo\nllm_based: true\n",
        "datasets/sums.yaml": DATASET,
        "data/sums.csv": str(given.get("rows", ROWS)),
        "rewards/sums.py": str(given.get("reward", REWARD)),
        "deployments/e0.yaml": DEPLOYMENT.format(name="e0"),
    }
    for number in range(count):
        name, description = f"e{number}", given.get("description", "an experiment")
        files[f"experiments/{name}.yaml"] = EXPERIMENT.format(name=name, description=description)
        files[f"manifests/{name}.yaml"] = MANIFEST.format(seed=seed + number, steps=given.get("steps", 64))
    return put(root, files)


def put(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def commit(root: Path) -> Path:
    """Commit everything; the first time, in a new repository."""
    if not (root / ".git").exists():
        git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "all of it")
    return root


def git(root: Path, *args: str) -> str:
    """Run git as somebody."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", root, *identity, *args], check=True, capture_output=True, text=True)
    return done.stdout
