"""A small infra repository on disk, changed file by file, and loaded as it is."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.load import load
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredState

EXPERIMENT = Address("experiment", "sums-grpo")
BARE = "kind: Experiment\nname: sums-grpo\nmanifest: ../manifests/grpo.yaml\n"
FILES = {
    "arena.yaml": "name: team\nproject: maths\n",
    "experiments/project.yaml": "kind: Project\nname: maths\n",
    "datasets/sums.yaml": """\
        kind: Dataset
        name: sums
        category: reasoning
        file: data/sums.csv
        column_mapping:
          question: question
          answer: answer
        """,
    "datasets/data/sums.csv": "question,answer\n1+1?,#### 2\n",
    "rewards/exact.py": "def reward(question, answer, completion):\n    return 1.0\n",
    "manifests/grpo.yaml": """\
        algorithm:
          name: GRPO
          batch_size: 4
          lr: 1e-5
        environment:
          name: sums
        training:
          max_steps: 1_000
          pop_size: 2
          hpo: true
        network:
          pretrained_model_name_or_path: tiny
          max_context_length: 64
        """,
    "experiments/sums-grpo.yaml": """\
        kind: Experiment
        name: sums-grpo
        manifest: ../manifests/grpo.yaml
        dataset: sums
        reward: exact
        """,
    "deployments/sums.yaml": """\
        kind: Deployment
        name: sums
        experiment: sums-grpo
        """,
}


@dataclass(frozen=True)
class InfraRepo:
    """A git repository that is loaded as it is on disk."""

    root: Path

    def write(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        (self.root / path).write_text(text.replace(old, new))

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")
        return self.git("rev-parse", "HEAD")

    def load(self) -> DesiredState:
        return load(self.root)

    def problems(self) -> list[str]:
        """`place code` of every error."""
        with pytest.raises(RepoError) as caught:
            self.load()
        return [f"{problem.span} {problem.code}" for problem in caught.value.diagnostics]

    def messages(self) -> str:
        with pytest.raises(RepoError) as caught:
            self.load()
        return str(caught.value)

    @classmethod
    def make(cls, root: Path, files: dict[str, str] = FILES) -> InfraRepo:
        """A repository of these files, committed."""
        root.mkdir(parents=True, exist_ok=True)
        repo = cls(root)
        repo.git("init", "--quiet", "--initial-branch", "main")
        repo.git("config", "user.name", "A")
        repo.git("config", "user.email", "a@example.org")
        repo.git("config", "core.autocrlf", "false")
        for path, text in files.items():
            repo.write(path, text)
        if files:
            repo.commit()
        return repo


def inputs(repo: InfraRepo) -> Any:
    """What its experiment trains on."""
    return repo.load().resources[EXPERIMENT].spec["inputs"]


def notes(repo: InfraRepo, code: str = "composition") -> list[str]:
    """Notes of one code, with their places."""
    return [f"{n.span} {n.message}" for n in repo.load().notes if n.code == code]


def with_environment(repo: InfraRepo, *lines: str) -> None:
    """The experiment without references, and a manifest whose environment section is these lines."""
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.edit("manifests/grpo.yaml", "  name: sums\n", "".join(f"  {line}\n" for line in lines))
