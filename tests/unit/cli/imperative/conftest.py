"""Commands by name at one real server, whose workers and model server are scripted; and at one that is all scripted."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hub import hub, parquet
from loopback import scripted
from real_server import real_server

from arena_gitops.cli.main import run

__all__ = ["scripted"]

MANIFEST = """\
algorithm:
  name: GRPO
  batch_size: 4
  group_size: 4
  lr: 0.00001
environment:
  name: sums
training:
  max_steps: 16
  evo_steps: 8
  pop_size: 2
  hpo: true
network:
  pretrained_model_name_or_path: tiny
  max_context_length: 128
"""
REWARD = (
    "def reward(question, answer, completion):\n    return float(answer.split()[-1] in completion.split())\n"
)
ROWS = "question,answer\n" + "".join(f"What is {n} + {n}?,#### {2 * n}\n" for n in range(40))
MAPPING = '{"question": "question", "answer": "answer"}'


class Arena:
    """`arena` in a folder and a home of its own."""

    def __init__(self, capsys, folder: Path) -> None:
        self.capsys, self.folder = capsys, folder

    def __call__(self, *args: str, expect: int = 0) -> str:
        """What it printed on stdout."""
        return self.both(*args, expect=expect)[0]

    def both(self, *args: str, expect: int = 0) -> tuple[str, str]:
        code = run(args)
        out, err = self.capsys.readouterr()
        assert code == expect, f"exit {code}\n{out}\n{err}"
        return out, err

    def json(self, *args: str, expect: int = 0):
        return json.loads(self(*args, "--json", expect=expect))

    def until(self, condition, seconds: float = 60.0):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return found


HUB = {
    "openai/gsm8k": {"main/train-0.parquet": parquet([{"question": "1+1?", "answer": "#### 2"}] * 3)},
    "team/other-columns": {"train.csv": b"prompt,text\na,b\n"},
}


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("imperative") / "server"
    with hub(HUB) as url, real_server(home, hub={"endpoint": url}) as found:
        yield found


@pytest.fixture
def alone(capsys, tmp_path, monkeypatch):
    """`arena` with a fresh home, in an empty folder, with no server."""
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))
    return Arena(capsys, tmp_path / "work")


@pytest.fixture
def arena(alone, server, monkeypatch):
    """`arena` at the real server, with a manifest, a reward and rows beside it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    (alone.folder / "grpo.yaml").write_text(MANIFEST)
    (alone.folder / "reward.py").write_text(REWARD)
    (alone.folder / "sums.csv").write_text(ROWS)
    return alone


@pytest.fixture
def at_script(alone, scripted, monkeypatch):
    """`arena` at the scripted server."""
    monkeypatch.setenv("ARENA_BASE_URL", scripted.url)
    monkeypatch.setenv("ARENA_API_KEY", "key")
    return alone


@pytest.fixture
def sums(arena, request):
    """The dataset that the manifest names; and a seed of this test's own, for equal work is shared."""
    seed = sum(request.node.nodeid.encode())
    (arena.folder / "grpo.yaml").write_text(MANIFEST.replace("lr:", f"seed: {seed}\n  lr:"))
    arena(
        "datasets",
        "create",
        "sums",
        "--category",
        "reasoning",
        "--file",
        "sums.csv",
        "--column-mapping",
        MAPPING,
    )
    return arena
