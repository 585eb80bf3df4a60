"""Environments are imported, tested and stepped inside the sandbox."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from importlib.metadata import version

import pytest
from archives import MERGE
from customs import AGENTS

from arena_gitops.spec.job import EnvironmentInput
from arena_runner.checks.environment import CODE, EnvironmentCheck
from arena_runner.sandbox import Limits
from arena_runner.sandbox.libraries import with_libraries

pytest.importorskip("gymnasium")
OURS = f"gymnasium=={version('gymnasium')}"


@pytest.fixture
def check(tmp_path):
    """`check(source, entrypoint, …)`: the check and its verdicts by name."""

    def make(source=MERGE, entrypoint="env:MergeEnv", *, multi_agent=False, config=None, **more):
        path = tmp_path / "env.py"
        path.write_text(source)
        digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        environment = EnvironmentInput(
            address="environment/merge",
            files={"env.py": digest},
            entrypoint=entrypoint,
            multi_agent=multi_agent,
            env_config=config or {},
        )
        made = EnvironmentCheck(environment, lambda _digest: path, **more)
        return made, {result.name: result for result in made.run()}

    return make


def test_a_right_environment_passes_everything_and_tells_of_itself(check):
    made, verdicts = check(rollouts=True, config={"size": 3})

    assert {result.status for result in verdicts.values()} == {"pass"}
    assert list(verdicts) == [
        "import",
        "constructor",
        "random steps",
        "idle steps",
        "reward bounds",
        "seeding",
        "library check",
        "resets",
        "random episodes",
    ]
    assert made.values["observation_space"] == "Box(0.0, 1.0, (3,), float32)"
    assert made.values["mean_length"] == 10


def test_several_agents_are_tested_by_pettingzoo(check):
    pytest.importorskip("pettingzoo")

    made, verdicts = check(AGENTS, "env:Two", multi_agent=True)

    assert {result.status for result in verdicts.values()} == {"pass"}, [v.message for v in verdicts.values()]
    assert made.values["agents"] == ["left", "right"]
    assert list(verdicts) == [
        "import",
        "constructor",
        "library check",
        "random steps",
        "idle steps",
        "reward bounds",
        "seeding",
        "resets",
    ]


@pytest.mark.parametrize(
    ("declared", "status", "said"),
    [
        ("(0, 1)", "pass", "between 0 and 1, within its reward_range (0, 1)"),
        ("(-1, 0.5)", "fail", "or declare reward_range = (-1, 1)"),
        ("'any'", "fail", "write the least and the greatest reward of a step"),
    ],
)
def test_rewards_stay_within_what_the_environment_declares(check, declared, status, said):
    _, verdicts = check(MERGE.replace("(gym.Env):", f"(gym.Env):\n    reward_range = {declared}"))

    assert verdicts["reward bounds"].status == status
    assert said in verdicts["reward bounds"].message
    assert {one.status for name, one in verdicts.items() if name != "reward bounds"} == {"pass"}


def test_the_bounds_are_those_of_one_agent(check):
    source = AGENTS.replace('possible_agents = ["left', 'reward_range = (0, 1)\n    possible_agents = ["left')

    _, verdicts = check(source, "env:Two", multi_agent=True)

    assert verdicts["reward bounds"].message == "between 1 and 1, within its reward_range (0, 1)"


def test_only_allowed_actions_are_tried(check):
    source = MERGE.replace("return self.look(), {}", "return self.look(), {'action_mask': np.array([0, 1])}")
    source = source.replace(
        "self.left == 0, False, {}", "self.left == 0, False, {'action_mask': np.array([0, 1])}"
    )
    source = source.replace("        self.left -= 1", "        assert action == 1\n        self.left -= 1")

    _, verdicts = check(source)

    assert [(verdicts[name].status) for name in ("random steps", "idle steps")] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("change", "name", "said", "line"),
    [
        (("import numpy as np", "import numpy as np, nowhere"), "import", "No module named 'nowhere'", 3),
        (("class MergeEnv", "class Other"), "import", "it has: Other", None),
        (("size=4", "size"), "constructor", "missing 1 required positional argument", None),
        (("self.left = 10", "self.left = 1 / 0"), "random steps", "ZeroDivisionError", 13),
        (("float(action)", "float('nan')"), "random steps", "no finite number", 16),
        ((".astype(np.float32)", ""), "random steps", "its dtype is float64, expected float32", 11),
        (("self.left == 0, False, {}", "self.left == 0, {}"), "random steps", "(observation, reward,", 16),
    ],
)
def test_what_is_wrong_is_told_with_the_users_own_line(check, change, name, said, line):
    assert change[0] in MERGE

    _, verdicts = check(MERGE.replace(*change))

    assert verdicts[name].status == "fail", verdicts
    assert said in verdicts[name].message
    assert verdicts[name].line == line


def test_an_environment_that_forgets_its_seed_fails_once(check):
    _, verdicts = check(MERGE.replace("self.np_random.random", "np.random.default_rng().random"))

    failed = [(name, one.line) for name, one in verdicts.items() if one.status == "fail"]
    assert failed == [("seeding", 11)]


@pytest.mark.parametrize(
    ("line", "said"), [("while True: pass", "longer than 5 s"), ("import os; os._exit(3)", "exit code 3")]
)
def test_one_that_hangs_or_ends_the_process_is_a_verdict(check, line, said):
    source = MERGE.replace("self.left -= 1", line)

    _, verdicts = check(source, limits=Limits(call_timeout_s=5.0))

    assert [said in result.message for result in verdicts.values() if result.status == "fail"] == [True]


def test_it_cannot_read_what_belongs_to_the_server(check, tmp_path):
    (tmp_path / "secret").write_text("x")
    source = MERGE.replace(
        "self.left = 10", f"self.left = len(open({str(tmp_path / 'secret')!r}).read()) + 9"
    )

    _, verdicts = check(source)

    assert verdicts["random steps"].status == "fail"


def test_an_environment_for_language_models_is_constructed_only(check):
    _, verdicts = check(language=True)

    assert {name: result.status for name, result in verdicts.items()} == {
        "import": "pass",
        "constructor": "pass",
        "library check": "warn",
    }


def test_a_profile_is_numbers(check):
    made, _ = check()

    figures = made.profile()

    assert set(figures) == {"steps_per_second", "avg_cpu_per_env", "peak_cpu_per_env", "memory_per_env_gb"}
    assert figures["steps_per_second"] > 100


@pytest.mark.parametrize(
    ("requirements", "installed"),
    [
        ((), ()),
        (("pytest", "pydantic>=2"), ()),
        (("pytest>=999",), ("pytest>=999", OURS)),
        (("pytest[extra]",), ("pytest[extra]", OURS)),
        (("nowhere-at-all; python_version < '3'",), ()),
        (("nowhere-at-all", "gymnasium>=1"), ("nowhere-at-all", "gymnasium>=1")),
    ],
)
def test_packages_are_installed_only_when_some_are_missing(requirements, installed):
    assert with_libraries(EnvironmentInput(requirements=requirements)) == installed


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("multi_agent", "module", "said"),
    [
        (False, "gymnasium.utils.env_checker", "gymnasium is not installed here"),
        (True, "pettingzoo", "PettingZoo is not installed here"),
    ],
)
def test_a_library_that_is_not_there_is_a_warning(monkeypatch, multi_agent, module, said):
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setitem(sys.modules, module, None)
    for path in reversed(CODE[1:]):  # beside the driver, as in the box
        monkeypatch.setitem(sys.modules, path.stem, loaded(path))
    driver = loaded(CODE[0])

    answer = driver.run("api", json.dumps({"multi_agent": multi_agent}), "")

    assert answer["ok"], answer
    assert said in answer["warnings"][0]
