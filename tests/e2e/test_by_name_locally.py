"""Commands by name with nothing but a machine: the first one starts the embedded server, the next ones find it."""

from __future__ import annotations

import json

import pytest

from arena_gitops.cli.main import run
from arena_gitops.platforms.local import Home, stop_local

pytestmark = [pytest.mark.slow]


@pytest.fixture
def arena(tmp_path, monkeypatch, capsys):
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[str, str]:
        code = run(args)
        out, err = capsys.readouterr()
        assert code == 0, err
        return out, err

    yield call
    stop_local(Home(tmp_path / "home"))


def test_a_new_machine_needs_no_setting_and_keeps_its_default_project(arena, tmp_path):
    out, err = arena("projects", "create", "First", "--json")
    assert json.loads(out)["id"] == "first"
    assert "starting the local server" in err
    arena("projects", "set-default", "First")

    before = Home(tmp_path / "home").running()
    stop_local(Home(tmp_path / "home"))

    assert json.loads(arena("projects", "get-default", "--json")[0]) == {"project": "First"}
    assert Home(tmp_path / "home").running() is None  # asks no server
    assert [row["name"] for row in json.loads(arena("projects", "list", "--json")[0])] == ["First"]
    assert Home(tmp_path / "home").running().pid != before.pid
