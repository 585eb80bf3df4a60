"""`arena.yaml` alone can be read while the rest of the repository is broken."""

from __future__ import annotations

import subprocess

import pytest

from arena_gitops.errors import RepoError
from arena_gitops.repo.load import load, load_head


def repository(root, arena_yaml: str):
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "arena.yaml").write_text(arena_yaml)
    return root


def test_the_head_is_read_beside_broken_files(tmp_path):
    root = repository(
        tmp_path, "name: team\ntargets:\n  prod: {platform: http, url: 'https://a.example.org'}\n"
    )
    (root / "datasets").mkdir()
    (root / "datasets" / "broken.yaml").write_text("kind: Datasett\n")
    with pytest.raises(RepoError):
        load(root)
    head = load_head(root, namespace="pr-1")
    assert (head.owner.stack, head.owner.namespace) == ("team", "pr-1")
    assert head.targets["prod"].url == "https://a.example.org"
    assert head.default_target == "prod"


def test_a_broken_head_is_refused_with_its_place(tmp_path):
    root = repository(tmp_path, "name: team\ntargts: {}\n")
    with pytest.raises(RepoError, match=r"arena\.yaml:2:1"):
        load_head(root)
