"""`arena-runner check` without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from arena_gitops.errors import CheckFailedError, UsageError
from arena_runner.checks.main import command

REWARD = "import near\ndef reward(question, answer, completion): return near.score(answer, completion)\n"
NEAR = "def score(answer, completion): return float(answer[-1:] in completion)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(REWARD)
    (tmp_path / "near.py").write_text(NEAR)
    (tmp_path / "d.csv").write_text("question,reply\n2+2?,4\n3*3?,9\n")
    return tmp_path


def test_a_good_pair_passes(folder: Path):
    arguments = [
        "--dataset",
        f"{folder}/d.csv",
        "--column",
        "answer=reply",
        "--reward",
        f"{folder}/mine.py",
        "--json",
    ]
    done = CliRunner().invoke(command, arguments)
    assert done.exception is None
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["failed"] == 0


def test_a_missing_column_fails_with_the_documented_exit_code(folder: Path):
    done = CliRunner().invoke(command, ["--dataset", f"{folder}/d.csv"])
    assert isinstance(done.exception, CheckFailedError)
    assert done.exception.exit_code == 10
    assert "FAIL  dataset/d  columns: the file has no column 'answer'" in done.stdout


MANIFEST = """\
algorithm: {name: GRPO}
environment: {name: d, prompt_template: {user_0: "Add up: {sum}"}}
network: {pretrained_model_name_or_path: tiny, max_context_length: 64}
training: {max_steps: 100}
"""


def test_a_prompt_that_no_column_fills_is_an_error(folder: Path):
    (folder / "m.yaml").write_text(MANIFEST)
    arguments = [f"{folder}/m.yaml", "--dataset", f"{folder}/d.csv", "--column", "answer=reply"]
    done = CliRunner().invoke(command, arguments)
    assert "prompt_template.user_0: {sum} is filled by nothing" in done.stdout
    assert isinstance(done.exception, CheckFailedError)


def test_nothing_to_check_is_a_usage_error():
    assert isinstance(CliRunner().invoke(command, []).exception, UsageError)
