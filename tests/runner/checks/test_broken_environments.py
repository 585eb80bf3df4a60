"""Ten ways in which environments are broken: each is one failure, in words, at the user's own line."""

from __future__ import annotations

import hashlib

import pytest
from archives import MERGE
from customs import AGENTS, ROOM
from index import package_index

from arena_gitops.spec.job import EnvironmentInput
from arena_runner.checks.environment import EnvironmentCheck
from arena_runner.sandbox import Limits
from arena_runner.sandbox.limits import MIB

ENOUGH = Limits(call_timeout_s=60.0, memory_bytes=1024 * MIB)
SHORT = Limits(call_timeout_s=6.0)


def line_of(source, text):
    """The line that holds a text, which only one does."""
    (line,) = (n for n, written in enumerate(source.splitlines(), 1) if text in written)
    return line


def failures(tmp_path, source, entrypoint, *, limits=ENOUGH, **more):
    """What a check fails: (check, message, file, line)."""
    path = tmp_path / "env.py"
    path.write_text(source)
    digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    environment = EnvironmentInput(
        address="environment/broken", files={"env.py": digest}, entrypoint=entrypoint, **more
    )
    results = list(EnvironmentCheck(environment, lambda _digest: path, limits=limits).run())
    return [(one.name, one.message, one.file, one.line) for one in results if one.status == "fail"]


BROKEN = {
    "wrong shapes": (
        MERGE,
        ("random(self.observation_space.shape)", "random(3)"),
        ("random steps", "its shape is (3,), expected (4,); make them agree", "def reset"),
    ),
    "numbers that are none": (
        MERGE,
        ("astype(np.float32)", "astype(np.float32) * (np.nan if self.left == 5 else 1)"),
        ("random steps", "it holds NaN; make them agree", "def step"),
    ),
    "no seed": (
        MERGE,
        ("self, *, seed=None, options=None", "self"),
        ("random steps", "reset() got an unexpected keyword argument 'seed'", "def reset"),
    ),
    "a seed that is not used": (
        MERGE,
        ("self.np_random.random", "np.random.random"),
        ("seeding", "so no run can be repeated or resumed: draw from self.np_random", "def reset"),
    ),
    "a reset that never ends": (
        MERGE,
        ("self.left = 10", "while True: self.left = 10"),
        ("random steps", "it took longer than 6 s", "while True"),
    ),
    "an import error": (
        MERGE,
        ("import numpy as np", "import numpy as np\nimport nowhere"),
        ("import", "No module named 'nowhere' (name its package in requirements.txt", "import nowhere"),
    ),
    "a memory hog": (
        MERGE,
        ("self.left -= 1", "self.left -= 1; self.hoard = [bytearray(1 << 24) for _ in range(999)]"),
        ("random steps", "it wants more memory than an environment may have", "self.hoard"),
    ),
    "memory that grows with every reset": (
        MERGE,
        ("self.left = 10", "self.left = 10; HOARD.append(bytearray(b'x') * (1 << 16))"),
        ("resets", "200 resets left", "def reset"),
    ),
    "an episode that remembers the last": (
        MERGE,
        ("self.left = 10", "self.left = getattr(self, 'left', 10)"),
        ("seeding", "something of the first survives reset", "def reset"),
    ),
    "an observation that is no array": (
        ROOM,
        ('"place": self.at.copy()', '"place": self.lock'),
        ("random steps", "is not in observation_space", "def reset"),
    ),
    "rewards beyond what it declares": (
        MERGE,
        ("def __init__", "reward_range = (0, 0.5)\n\n    def __init__"),
        ("reward bounds", "leaves its reward_range of 0 to 0.5: clip or scale them in step", "def step"),
    ),
    "agents that remember the last episode": (
        AGENTS,
        ("list(self.possible_agents), 5", "list(self.possible_agents), getattr(self, 'left', 5) or 3"),
        ("seeding", "something of the first survives reset", "def reset"),
    ),
    "agents that nobody knows": (
        AGENTS,
        ("list(self.possible_agents), 5", "['left', 'middle'], 5"),
        (
            "library check",
            "agents are for ['left', 'middle'], but the agents that act are ['left', 'right']",
            "def reset",
        ),
    ),
    "an agent that is not paid": (
        AGENTS,
        ("for agent in acted} for", "for agent in acted[:1]} for"),
        (
            "library check",
            "rewards are for ['left'], but the agents that act are ['left', 'right']",
            "def step",
        ),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment_fails_once_with_its_line(tmp_path, case):
    source, (old, new), (name, said, at) = BROKEN[case]
    assert old in source
    broken = "HOARD = []\n" + source.replace(old, new)
    entrypoint = {MERGE: "env:MergeEnv", ROOM: "env:Room", AGENTS: "env:Two"}[source]
    limits = SHORT if "never ends" in case else ENOUGH

    failed = failures(tmp_path, broken, entrypoint, limits=limits, multi_agent=source is AGENTS)

    assert [(check, file, line) for check, _, file, line in failed] == [
        (name, "env.py", line_of(broken, at))
    ], failed
    assert said in failed[0][1]


def test_a_requirement_that_is_not_to_be_had_is_one_failure_of_the_file_that_names_it(tmp_path, monkeypatch):
    with package_index() as index:
        for name, value in {"INDEX_URL": index.url, "RETRIES": "0", "CONFIG_FILE": "/dev/null"}.items():
            monkeypatch.setenv(f"PIP_{name}", value)
        monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
        (name, said, file, _), *more = failures(
            tmp_path, MERGE, "env:MergeEnv", requirements=("arenanowhere",)
        )

    assert (name, file, more) == ("import", "requirements.txt", [])
    assert "the environment's requirements (arenanowhere, " in said


def test_of_two_environments_neither_is_taken(tmp_path):
    """Where they are found, they are listed: when they are sent (`test_environment_routes`) or read (`test_inputs_of_a_job`)."""
    failed = failures(tmp_path, MERGE, None)

    assert [(name, said) for name, said, _, _ in failed] == [
        ("import", "no environment of it was chosen: write entrypoint: module:Class")
    ]


def test_what_cannot_be_pickled_is_no_fault_because_nothing_is(tmp_path):
    assert failures(tmp_path, ROOM, "env:Room") == []
