"""Rewards written inline, scored in the real sandbox."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from arena_gitops.spec.job import RewardInput
from arena_runner.sandbox import RewardPool

NO_DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def pool_of(tmp_path: Path):
    """Make a pool for a reward given as source text; `extra` holds more files of the repository."""

    def make(source: str, *, extra: dict[str, str] | None = None, requirements=(), secrets=None, **options):
        files = {"rewards/mine.py": source, **(extra or {})}
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        reward = RewardInput(
            address="reward/mine",
            files=dict.fromkeys(files, NO_DIGEST),
            entry="rewards/mine.py",
            requirements=requirements,
            secrets=tuple(secrets or ()),
            network=options.pop("network", "none"),
        )
        return RewardPool(reward, tmp_path, secrets=secrets, **options)

    return make
