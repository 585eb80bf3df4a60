"""`arena check` in an example repository: static without a server, `--run` in the sandbox of a real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of an example, with a home for its server, which is stopped at the end."""
    place = tmp_path_factory.mktemp("check") / "repository"
    shutil.copytree(ROOT / "examples" / "infra-repo", place)
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    yield place
    arena(place, "server", "stop")


def arena(folder, *args, home="home"):
    environ = {**os.environ, "ARENA_HOME": str(folder.parent / home)}
    environ = {k: v for k, v in environ.items() if k not in {"ARENA_BASE_URL", "CI"}}
    command = [sys.executable, "-m", "arena_gitops.cli", "-C", str(folder), *args]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_static_check_starts_nothing(folder):
    done = arena(folder, "check", home="untouched")
    assert done.returncode == 0, done.stderr
    assert "ok    reward/word-problems  definition: is valid" in done.stdout
    assert not (folder.parent / "untouched").exists()


def test_a_run_check_passes_the_example_and_writes_its_verdicts(folder):
    out = folder.parent / "checks.json"
    done = arena(folder, "check", "--run", "reward/word-problems", "-o", str(out), "--target", "local")
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(out.read_text())
    assert (document["kind"], document["ran"], document["summary"]["failed"]) == ("arena.checks", True, 0)
    assert {r["address"] for r in document["results"]} == {"reward/word-problems"}
    assert {"cases", "discrimination", "hack"} <= {r["name"] for r in document["results"]}


def test_a_broken_reward_is_exit_10_with_its_line(folder):
    code = folder / "rewards" / "word_problems.py"
    before = code.read_text()
    code.write_text("def reward(question, answer, completion):\n    return 1 / 0\n")
    try:
        done = arena(folder, "check", "--run", "--format", "markdown", "--target", "local")
    finally:
        code.write_text(before)
    assert done.returncode == 10, done.stderr + done.stdout
    assert r"rewards/word\_problems.py:2: " in done.stdout
    assert "ZeroDivisionError" in done.stdout


def test_a_plan_shows_what_a_new_reward_pays_for_the_same_samples(folder):
    """The stored reward and the edited one on the same cases and rows, in the sandbox; the plan itself runs nothing."""
    select = ("--select", "reward/word-problems", "--target", "local")
    applied = arena(folder, "apply", "--yes", *select)
    assert applied.returncode == 0, applied.stderr + applied.stdout
    code, out = folder / "rewards" / "word_problems.py", folder.parent / "scores.json"
    before = code.read_text()
    code.write_text(before + "\n\ndef reward(question, answer, completion):  # noqa: F811\n    return 0.25\n")
    try:
        arena(folder, "check", "--run", "reward/word-problems", "-o", str(out), "--target", "local")
        planned = arena(folder, "plan", "--checks", str(out), *select)
        outdated = arena(folder, "plan", "--checks", str(out), "--offline", "--against", "git:HEAD")
    finally:
        code.write_text(before)
    assert planned.returncode == 0, planned.stderr
    assert "samples by arena check: mean " in planned.stdout
    assert "1.478 → 0.25 (expected 1.478)" in planned.stdout
    assert outdated.returncode != 0  # nothing was ever committed here


def test_a_file_that_is_no_record_of_checks_is_a_usage_error(folder):
    done = arena(folder, "plan", "--checks", str(folder / "arena.yaml"), "--offline", "--against", "git:HEAD")
    assert done.returncode == 64
    assert "is not what `arena check --run -o FILE` writes" in done.stderr
