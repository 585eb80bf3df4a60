"""A new team's first hour: three commands from nothing to an applied plan on the local target."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from arena_gitops.cli.main import run
from arena_gitops.platforms.local import Home, stop_local

pytestmark = pytest.mark.slow

IDLE_WORKER = [sys.executable, "-c", "import signal; signal.pause()"]
"""Takes no job: what is trained, and how, is another test's."""
TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "gsm8k-tutorial"


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "settings.yaml").write_text(json.dumps({"worker": {"command": IDLE_WORKER}}))
    monkeypatch.setenv("ARENA_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    stop_local(Home(folder))


def test_three_commands_lead_from_nothing_to_an_applied_plan(home, capsys):
    for command in (["init", "infra"], ["-C", "infra", "plan"], ["apply", "--yes"]):
        assert run(command) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "Plan: 5 to create" in out
    assert "experiment/infra  created" in out

    assert run(["plan", "--detailed-exitcode"]) == 0


def test_the_tutorials_two_files_lead_there_too(home, capsys):
    manifest, reward = TUTORIAL / "manifests" / "gsm8k_grpo.yaml", TUTORIAL / "rewards" / "gsm8k.py"
    assert run(["init", "infra", "--from-manifest", str(manifest), "--reward", str(reward)]) == 0
    assert run(["-C", "infra", "plan"]) == 0
    assert run(["apply", "--yes"]) == 0, capsys.readouterr().err
    assert "experiment/gsm8k  created" in capsys.readouterr().out
