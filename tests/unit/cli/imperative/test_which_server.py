"""Which server a command by name speaks to, what is remembered of it, and names for the tab key."""

from __future__ import annotations

import json
import socket
import subprocess

import pytest
from real_server import token_of

from arena_gitops.cli.imperative import completing
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.memory import Memory


def completed(kind: str, begun: str = "", **params) -> list[str]:
    context = type("Context", (), {"params": params})()
    return [item.value for item in names(kind)(context, None, begun)]


def test_a_repository_names_the_server_but_not_the_token(alone, scripted, monkeypatch):
    subprocess.run(["git", "init", "-q"], cwd=alone.folder, check=True)
    text = f"name: team\ndefault_target: ours\ntargets: {{ours: {{platform: http, url: '{scripted.url}'}}}}\n"
    (alone.folder / "arena.yaml").write_text(text)
    monkeypatch.setenv("ARENA_API_KEY", "for another server")
    assert "no token for" in alone.both("projects", "list", expect=6)[1]
    assert scripted.asked == []

    kept = alone.folder.parent / ".config" / "arena-gitops" / "credentials.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({scripted.url: {"token": "ours"}}))
    kept.chmod(0o600)
    scripted.will((200, b"[]", {}))
    alone("projects", "list")
    assert scripted.asked[0].headers["authorization"] == "Bearer ours"


def test_a_viewer_sees_and_may_not_change_and_an_inference_token_may_only_infer(arena, server, monkeypatch):
    arena("projects", "create", "seen")
    monkeypatch.setenv("ARENA_API_KEY", token_of(server, "viewer"))
    assert "seen" in arena("projects", "list")
    assert "role editor" in arena.both("projects", "create", "mine", expect=6)[1]
    assert arena.json("projects", "delete", "seen", "--yes", expect=6)["exit_code"] == 6

    monkeypatch.setenv("ARENA_API_KEY", token_of(server, "inference"))
    assert "role viewer" in arena.both("projects", "list", expect=6)[1]
    assert "does not exist" in arena.both("agent", "generate", "none", "--prompt", "Hi", expect=1)[1]


def test_under_ci_no_local_server_is_started_by_itself(alone, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert "no server was named" in alone.both("projects", "list", expect=64)[1]
    assert not (alone.folder.parent / "none").exists()


def test_names_are_completed_from_the_server(at_script, scripted):
    scripted.will((200, b'[{"name": "sums"}, {"name": "gsm8k"}, {"name": "gsm8k-test"}]', {}))
    assert completed("dataset", "gs") == ["gsm8k", "gsm8k-test"]
    assert completed("dataset", target=scripted.url) == ["gsm8k", "gsm8k-test", "sums"]


def test_a_server_that_hangs_does_not_hang_the_shell(alone, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ARENA_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("ARENA_API_KEY", "key")
        monkeypatch.setattr(completing, "PATIENCE_S", 0.1)
        assert completed("project") == []


@pytest.mark.parametrize("kind", ["project", "dataset", "experiment", "deployment", "environment", "model"])
def test_a_server_that_does_not_answer_completes_nothing(alone, monkeypatch, kind):
    assert completed(kind) == []  # no local server, and none is started
    monkeypatch.setenv("ARENA_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ARENA_API_KEY", "key")
    assert completed(kind) == []
    assert completed(kind, target="no-such-target") == []


def test_what_is_remembered_of_one_server_is_not_of_another(tmp_path):
    environ = {"HOME": str(tmp_path)}
    one, other = Memory.of(environ, "https://one"), Memory.of(environ, "https://other")
    one.change(lambda known: known.model_copy(update={"agent": "a"}))
    other.change(lambda known: known.model_copy(update={"agent": "b"}))
    assert (one.read().agent, other.read().agent) == ("a", "b")
    assert [path.name for path in one.path.parent.iterdir()] == ["preferences.json"]


def test_preferences_nobody_can_read_are_named(at_script, scripted):
    path = at_script.folder.parent / ".config" / "arena-gitops" / "preferences.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert f"{path} cannot be read; delete it" in at_script.both("projects", "get-default", expect=1)[1]
