"""Every example is a repository a user could own: it loads, plans, applies and settles over the memory platform."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.repo.load import load
from arena_gitops.report import words
from arena_gitops.spec.inputs import EnvironmentInput, EnvironmentProfile
from arena_gitops.spec.resource import KINDS, Address
from arena_gitops.spec.wire import Tier

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REPOSITORIES = sorted(path.parent.name for path in EXAMPLES.glob("*/arena.yaml"))


@pytest.fixture
def committed(tmp_path):
    """Copy an example to a folder of its own and commit it there."""

    def copy(name: str) -> Path:
        root = tmp_path / name
        shutil.copytree(EXAMPLES / name, root)
        for command in (
            ["init", "--quiet", "--initial-branch", "main"],
            ["add", "--all"],
            ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "All of it"],
        ):
            subprocess.run(["git", "-C", root, *command], check=True)
        return root

    return copy


def test_there_are_examples():
    assert "infra-repo" in REPOSITORIES


@pytest.mark.parametrize("name", REPOSITORIES)
def test_an_example_settles_after_one_apply(committed, name):
    desired = load(committed(name))
    platform = MemoryPlatform()
    world = World(platform)

    first = plan(world, desired, target="local")
    apply(world, first, desired, Consent.APPROVED)
    second = plan(world, desired, target="local")

    assert first.applyable
    assert len(first.changes) == len(desired.resources)
    assert not second.has_changes


def test_a_plan_counts_with_what_was_measured_of_an_environment(committed):
    desired, merge = load(committed("policies")), Address("experiment", "merge")
    given = desired.resources[merge].spec["inputs"]["environment"]
    profile = EnvironmentProfile(
        content=EnvironmentInput.model_validate(given).content,
        steps_per_second=10_000,
        avg_cpu_per_env=90,
        peak_cpu_per_env=100,
        memory_per_env_gb=1 / 8,
    )
    tier = Tier(id="local", num_cpus=2, ram_gb=8, credits_per_node_hour=0)
    made = plan(World(MemoryPlatform(profiles=[profile], tiers=[tier])), desired, target="local")
    known, other = (next(c for c in made.changes if c.at.name == n and c.fit) for n in ("merge", "crossing"))

    assert words.cost_line(known).endswith(
        "; at least 18s (profile: 360,000 steps of 3 members at 10,000 a second in each of 2 processes; "
        "learning and evaluation come on top)"
    )
    assert words.fit_line(known) == (
        "may not fit: 6.75 to 12.8 of 8 GiB (at most: environments 12, runtime 0.75); "
        "96 environments of 128 MiB each by their profile, 58 would fit"
    )
    assert words.fit_line(other) == (
        "unknown whether it fits (environment/crossing has not been measured here; arena check --run does)"
    )


@pytest.mark.parametrize("name", REPOSITORIES)
def test_an_example_declares_the_kinds_of_a_whole_change(committed, name):
    kinds = {address.kind for address in load(committed(name)).resources}

    others = {"dataset", "reward"} if name == "policies" else {"environment"}
    assert kinds == set(KINDS) - others


def test_the_environments_of_an_example_pass_their_own_tests(committed):
    pytest.importorskip("pettingzoo")
    root = committed("policies")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(root),
        "tests",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "script"), [("infra-repo", "make_word_problems.py"), ("sft-then-grpo", "make_data.py")]
)
def test_the_generator_writes_the_committed_bytes_again(committed, name, script):
    root = committed(name)
    subprocess.run([sys.executable, root / "scripts" / script], check=True, capture_output=True)

    changed = subprocess.run(
        ["git", "-C", root, "status", "--porcelain"], check=True, capture_output=True, text=True
    ).stdout

    assert changed == ""
