"""`arena` starts in milliseconds because it loads nothing that it does not need; these tests keep it so."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "peft", "vllm", "mlflow", "arena_runner"}
"""Never on the light side, whatever the command."""
NOT_FOR_HELP = {
    "rich",
    "httpx",
    "pydantic",
    "git",
    "jsonschema",
    "ruamel",
    "tenacity",
    "subprocess",
    "asyncio",
}
"""Libraries of single commands."""

PROBE = """
import sys
from arena_gitops.cli.main import run
code = run(sys.argv[1:])
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


def loaded_by(*args: str, **environ: str) -> set[str]:
    """Top-level names in `sys.modules` after one command."""
    answer = subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("LOADED")]
    assert lines, answer.stderr
    return set(lines[-1].split()[1:])


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_load_nothing_but_click(flag):
    assert loaded_by(flag) & (HEAVY | NOT_FOR_HELP) == set()


@pytest.mark.parametrize(
    "args",
    [
        ("plan", "--help"),
        ("apply", "--help"),
        ("validate", "--help"),
        ("status", "--help"),
        ("runs", "--help"),
        ("agent", "--help"),
        ("server", "status"),
        ("schema", "experiment"),
        ("ci", "plan", "--help"),
        ("init", "--help"),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_no_command_loads_the_heavy_side(args, tmp_path):
    assert loaded_by(*args, ARENA_HOME=str(tmp_path / "none")) & HEAVY == set()


def cpu_ms(*args: str) -> float:
    """User and system time of the fastest of several starts: noise only ever adds."""
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "arena_gitops.cli", *args], stdout=subprocess.DEVNULL, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * min(times)


@pytest.mark.parametrize(("flag", "budget_ms"), [("--version", 60), ("--help", 120)])
def test_start_up_stays_within_its_cpu_budget(flag, budget_ms):
    assert cpu_ms(flag) <= budget_ms
