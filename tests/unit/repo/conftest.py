"""A small infra repository in a temporary folder, changed file by file."""

from __future__ import annotations

from pathlib import Path

import pytest
from infra_repo import FILES, InfraRepo


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InfraRepo:
    """A git repository with nothing in it, untouched by the machine's git configuration."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    root = tmp_path / "infra"
    root.mkdir()
    repo = InfraRepo(root)
    repo.git("init", "--quiet", "--initial-branch=main")
    return repo


@pytest.fixture
def repo(empty: InfraRepo) -> InfraRepo:
    """A complete repository: project, dataset, reward, manifest, experiment, deployment."""
    for path, text in FILES.items():
        empty.write(path, text)
    return empty
