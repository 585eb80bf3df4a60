"""Own environments of several agents in sandboxed processes: the world they are in this process, and trained on."""

from __future__ import annotations

from pathlib import Path

import meeting
import numpy as np
import pytest
from customs import AGENTS, boxed, custom_job, environment_of
from labs import Recorder, files_of
from meeting import Meeting
from playground import met, play
from ruamel.yaml import YAML

from arena_gitops.spec.job import FailureReason, RunState
from arena_runner.ports import InterruptedRunError
from arena_runner.rollouts.together import Together
from arena_runner.rollouts.worlds import WorldError, seeds

SOURCE = Path(meeting.__file__).read_text()
ROWS = 3


def meeting_box(folder, source=SOURCE, rows=ROWS, **more):
    return boxed(folder, source, rows, entrypoint="env:Meeting", several=True, **more)


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        for kind in ("seen", "after"):
            mine, yours = getattr(one, kind), getattr(other, kind)
            assert mine.keys() == yours.keys()
            assert all(np.array_equal(mine[name], yours[name]) for name in yours)
        for name in ("reward", "terminated", "truncated"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_play_what_this_process_would_have_played(tmp_path, processes):
    ordinary, of = Together(Meeting, ROWS), seeds(3, 1, "episode")
    with meeting_box(tmp_path, processes=processes) as world:
        assert world.spaces == ordinary.spaces
        first, second = world.reset(of), ordinary.reset(of)
        assert all(np.array_equal(first[name], second[name]) for name in second)

        same(met(world, 2 * meeting.STEPS + 1), met(ordinary, 2 * meeting.STEPS + 1))


def test_a_saved_world_goes_on_where_it_stood(tmp_path):
    of = seeds(5, 1, "episode")
    with meeting_box(tmp_path) as world:
        world.reset(of)
        met(world, 17)
        state = {name: value.clone() for name, value in world.state().items()}
        whole = met(world, 12, start=17)
    with meeting_box(tmp_path) as again:
        again.restore(state, of)

        same(met(again, 12, start=17), whole)


def test_an_episode_of_evaluation_is_cut_off_for_all(tmp_path):
    with meeting_box(tmp_path, longest=3) as world:
        world.reset(seeds(1, 1, "episode"))

        last = met(world, 3)[-1]

    assert (last.terminated.any(), last.truncated.all(), last.ended.all()) == (False, True, True)


TURNS = """
from pettingzoo import AECEnv


class Meeting(AECEnv):
    metadata = {"name": "turns"}
    possible_agents = ["one", "other"]
"""
WRONG = {
    "leaves": ("leaves=0", "leaves=2", "walker left before the other agents did", "def step"),
    "shows": ('"glider": self.at[::-1]', '"pilot": self.at[::-1]', "it shows nothing to glider", "def reset"),
    "shape": (
        '"walker": self.at.astype(np.float32)',
        '"walker": self.at[:1].astype(np.float32)',
        "walker.obs has shape (1,); its space says (2,)",
        "def reset",
    ),
    "number": ("-abs(self.at", "np.nan * abs(self.at", "the reward is nan", "def step"),
    "raises": ('actions["walker"]', 'actions["pilot"]', "KeyError", 'actions["pilot"]'),
}


def begun_and_walked(folder, source):
    with meeting_box(folder, source) as world:
        world.reset(seeds(1, 1, "episode"))
        met(world, 3)


@pytest.mark.parametrize("case", WRONG)
def test_what_has_no_room_is_refused_with_the_users_line(tmp_path, case):
    old, new, said, at = WRONG[case]
    assert old in SOURCE
    source = SOURCE.replace(old, new)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if at in text)

    with pytest.raises(WorldError) as caught:
        begun_and_walked(tmp_path, source)

    assert str(caught.value).startswith(f"env.py:{line}: "), caught.value
    assert said in str(caught.value)


def test_agents_that_take_turns_are_refused_in_words(tmp_path):
    with pytest.raises(WorldError, match="its agents take turns"), meeting_box(tmp_path, TURNS):
        pass


EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "policies"
CROSSING = (EXAMPLE / "environments" / "crossing" / "crossing.py").read_text()
SMALL = {"max_steps": 160, "evo_steps": 80, "pop_size": 2, "test_episodes": 2}
LEARNS = {"IPPO": (CROSSING, "env:Crossing"), "MADDPG": (SOURCE, "env:Meeting")}


def run(folder, which, ports=None, *, several=True, resume=False):
    """A tiny budget; IPPO's on the example's game, with the example's manifest."""
    source, entrypoint = LEARNS.get(which, (AGENTS, "env:Two"))
    sections = {"training": SMALL}
    if which == "IPPO":
        sections = YAML(typ="safe").load((EXAMPLE / "manifests" / "crossing_ippo.yaml").read_text())
        sections["training"] |= {**SMALL, "max_steps": 2048, "evo_steps": 1024, "eval_episodes": 4}
    home = folder.parent / "source"
    environment = environment_of(home, source, entrypoint, multi_agent=several)
    return play(custom_job(which, environment, **sections), folder, ports, resume=resume, environment=home)


@pytest.mark.parametrize("which", LEARNS)
def test_a_population_trains_on_them_and_an_interrupted_run_goes_on(tmp_path, which):
    whole = run(tmp_path / "whole", which)
    with pytest.raises(InterruptedRunError):
        run(tmp_path / "cut", which, Recorder(stop_after=1))
    run(tmp_path / "cut", which, resume=True)

    assert whole.finished.state == RunState.COMPLETED, whole.finished.message
    assert {member.member for member in whole.of("evaluation")} == {0, 1}
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "cut")


@pytest.mark.parametrize(
    ("which", "several", "said"),
    [
        ("PPO", True, "PPO trains one agent, and environment/custom has several"),
        ("IPPO", False, "IPPO trains several agents, and environment/custom has one"),
    ],
)
def test_an_algorithm_for_another_number_of_agents_is_refused(tmp_path, which, several, said):
    ports = run(tmp_path / "run", which, several=several)

    assert (ports.finished.state, ports.finished.message) == (RunState.FAILED, said)
    assert ports.finished.reason in FailureReason
