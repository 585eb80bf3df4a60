"""Whose resources they are: no stack takes another's names, and a preview changes nothing but itself."""

from __future__ import annotations

import json
import subprocess

import pytest
from real_server import real_server

from arena_gitops.cli.main import run

REWARD = "def reward(question, answer, completion):\n    return 1.0\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with real_server(tmp_path_factory.mktemp("stacks") / "server") as found:
        yield found


@pytest.fixture
def arena(tmp_path, monkeypatch, capsys):
    """`arena("team", "plan", …)`: in the repository of a stack that has a reward and a project of one name."""
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))

    def call(stack, *args, expect=0, reward="exact"):
        root = tmp_path / f"repository-{len(stack)}-{stack[:8].strip()}"
        (root / "rewards").mkdir(parents=True, exist_ok=True)
        (root / "arena.yaml").write_text(f"name: {json.dumps(stack)}\n")
        (root / "rewards" / f"{reward}.py").write_text(REWARD)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        monkeypatch.chdir(root)
        code = run(args)
        out, err = capsys.readouterr()
        assert code == expect, f"exit {code}\n{out}\n{err}"
        return out + err

    return call


@pytest.fixture
def at_server(arena, server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return arena


@pytest.mark.parametrize(
    ("command", "name"),
    [("plan", name) for name in ("../x", "PR-12", "a/b", "", "-a", "a\n", "x" * 64)]
    + [(command, "../x") for command in ("apply", "validate", "drift", "status", "check", "rollback")],
)
def test_a_namespace_that_is_no_name_is_refused_before_anything_is_asked(arena, scripted, command, name):
    words = [command, "chat"] if command == "rollback" else [command]
    said = arena("team", *words, "--namespace", name, expect=64)
    assert "is no namespace" in said
    assert scripted.asked == []


def test_a_branch_name_is_answered_with_a_namespace(arena):
    assert "perhaps feature-new-reward" in arena(
        "team", "plan", "--namespace", "feature/New_Reward", expect=64
    )


@pytest.mark.parametrize(
    ("stack", "words"),
    [("Team A", "a name of lower case letters"), ("../x", "a name of"), ("imperative", "is reserved")],
)
def test_a_stack_that_is_no_name_is_refused_at_its_place(arena, stack, words):
    said = arena(stack, "validate", expect=65)
    assert "arena.yaml:1:" in said
    assert words in said


def test_a_name_that_another_stack_owns_is_refused_with_the_owners_name(at_server):
    at_server("owners", "apply", "--yes", "--allow-dirty")
    said = at_server("others", "apply", "--yes", "--allow-dirty", expect=3)
    assert "reward/exact belongs to stack owners" in said
    assert "No changes" in at_server("owners", "plan")


def test_a_preview_reads_main_and_changes_only_itself(at_server, server):
    at_server("previewed", "apply", "--yes", "--allow-dirty", reward="fair")
    at_server("previewed", "apply", "--yes", "--allow-dirty", "--namespace", "pr-12", reward="fair")
    preview, main = state(server, "pr-12"), state(server, "main")
    assert [r["name"] for r in preview] == [r["name"] for r in main] == ["fair"]

    at_server("previewed", "apply", "--yes", "--allow-dirty", "--namespace", "pr-12", reward="other")
    assert {r["name"] for r in state(server, "pr-12")} == {"fair", "other"}
    assert state(server, "main") == main


def state(server, namespace):
    import httpx

    answer = httpx.get(
        f"{server.url}/api/v1/state",
        params={"stack": "previewed", "namespace": namespace},
        headers={"Authorization": f"Bearer {server.token}"},
    )
    return answer.json()["resources"]
