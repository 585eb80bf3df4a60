"""arena projects, at a real server."""

from __future__ import annotations

import json
import os


def test_a_project_is_made_listed_and_deleted(arena):
    assert arena("projects", "create", "My Sums", "--llm-based", "--description", "adds") == (
        "project My Sums (my-sums)\n"
    )
    assert arena.json("projects", "create", "My Sums", "--llm-based")["id"] == "my-sums"
    row = {"name": "My Sums", "id": "my-sums", "type": "llm", "description": "adds"}
    assert row in arena.json("projects", "list")
    assert "My Sums  llm" in arena("projects", "list")

    assert "add --yes" in arena.both("projects", "delete", "My Sums", expect=64)[1]
    assert arena.json("projects", "delete", "My Sums", "--yes") == {
        "kind": "project",
        "name": "My Sums",
        "deleted": True,
    }
    assert row not in arena.json("projects", "list")
    assert "does not exist" in arena.both("projects", "delete", "My Sums", "--yes", expect=1)[1]


def test_the_default_project_is_kept_for_each_server_apart(arena, server, monkeypatch):
    arena("projects", "create", "first")
    assert "no default project" in arena.both("projects", "get-default")[1]
    assert "there is no project 'frist' here" in arena.both("projects", "set-default", "frist", expect=64)[1]
    assert arena("projects", "set-default", "first") == "first\n"
    assert arena.json("projects", "get-default") == {"project": "first"}

    monkeypatch.setenv("ARENA_BASE_URL", "https://elsewhere.example")
    assert arena.json("projects", "get-default") == {"project": None}

    monkeypatch.setenv("ARENA_BASE_URL", server.url)
    arena("projects", "delete", "first", "--yes")
    assert arena.json("projects", "get-default") == {"project": None}


def test_the_published_clients_files_are_neither_read_nor_written(arena):
    theirs = arena.folder.parent / ".arena"
    theirs.mkdir()
    (theirs / "config.json").write_text(json.dumps({"default_project": "of the hosted server"}))
    (theirs / "credentials.json").write_text(json.dumps({"access_token": "secret"}))
    before = {path.name: path.read_text() for path in theirs.iterdir()}

    assert arena.json("projects", "get-default") == {"project": None}
    os.environ.pop("ARENA_API_KEY")
    assert "no token for" in arena.both("projects", "list", expect=6)[1]

    assert {path.name: path.read_text() for path in theirs.iterdir()} == before
