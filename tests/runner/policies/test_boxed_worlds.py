"""Custom environments in sandboxed processes: the same world as in this process, its faults told with their line."""

from __future__ import annotations

import numpy as np
import pytest
from archives import MERGE
from customs import ROOM, boxed, custom_job, environment_of
from labs import Recorder
from playground import play

from arena_gitops.spec.job import FailureReason, RunState
from arena_runner import checkpoint
from arena_runner.ports import InterruptedRunError
from arena_runner.rollouts.worlds import Plain, WorldError, seeds
from arena_runner.sandbox import Limits

ROWS = 5


def plain(source, rows=ROWS, **more):
    names: dict = {}
    exec(compile(source, "env.py", "exec"), names)
    return Plain(names["Room"], rows, **more)


def walk(world, steps, start=0):
    """Everything that a fixed sequence of actions led to."""
    told = []
    for step in range(start, start + steps):
        actions = np.array([[(step * 7 + row * 3) % 5 % 3] for row in range(world.rows)])
        done = world.step(actions)
        told.append((dict(done.seen), dict(done.after), done.reward, done.terminated, done.truncated))
    return told


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        for kind in (0, 1):
            assert one[kind].keys() == other[kind].keys()
            for name, value in one[kind].items():
                assert (value.dtype, value.shape) == (other[kind][name].dtype, other[kind][name].shape)
                assert np.array_equal(value, other[kind][name]), name
        assert all(np.array_equal(a, b) for a, b in zip(one[2:], other[2:], strict=True))


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_play_what_this_process_would_have_played(tmp_path, processes):
    """Vectors, categories, pictures and masks; however many processes share the rows."""
    ordinary, of = plain(ROOM), seeds(3, 2, "episode")
    with boxed(tmp_path, ROOM, ROWS, processes=processes) as world:
        assert world.spaces == ordinary.spaces
        first, second = world.reset(of), ordinary.reset(of)
        assert all(np.array_equal(first[name], second[name]) for name in second)
        ours, theirs = walk(world, 25), walk(ordinary, 25)

    same(ours, theirs)
    assert sum(int(one[4].sum()) for one in ours) >= ROWS


def test_what_judges_rests_after_its_episode_as_in_this_process(tmp_path):
    ordinary, of = plain(ROOM, once=True), seeds(3, 2, "episode")
    with boxed(tmp_path, ROOM, ROWS, once=True) as world:
        world.reset(of), ordinary.reset(of)
        ours, theirs = walk(world, 9), walk(ordinary, 9)
        again = world.reset(of), walk(world, 9)

    same(ours, theirs)
    same(ours, again[1])
    assert sum(one[3] | one[4] for one in ours).tolist() == [1] * ROWS
    assert not ours[-1][2].any()


def test_a_saved_world_goes_on_where_it_stood(tmp_path):
    of = seeds(5, 2, "episode")
    with boxed(tmp_path, ROOM, ROWS) as world:
        world.reset(of)
        walk(world, 9)
        state = {name: value.clone() for name, value in world.state().items()}
        whole = walk(world, 12, start=9)
    with boxed(tmp_path, ROOM, ROWS) as again:
        again.restore(state, of)

        same(walk(again, 12, start=9), whole)


def test_an_episode_of_evaluation_is_cut_off(tmp_path):
    with boxed(tmp_path, ROOM, 2, longest=3) as world:
        world.reset(seeds(1, 1, "episode"))

        last = walk(world, 3)[-1]

    assert (last[3].any(), last[4].all()) == (False, True)


WRONG = {
    "another shape": (
        '"place": self.at.copy()',
        '"place": self.at[:1]',
        "place has shape (1,); its space says (2,)",
    ),
    "no number": (
        '"place": self.at.copy()',
        '"place": self.at * np.nan',
        "place is array([nan, nan]), which is not in its space",
    ),
    "no such door": (
        "np.int64(1 + self.left % 3)",
        "np.int64(7)",
        "door is np.int64(7), which is not in its space",
    ),
    "a part is missing": ('"door": np.int64(1 + self.left % 3),', "", "the observation has no door"),
    "a lock": ('"place": self.at.copy()', '"place": self.lock', "place has shape (); its space says (2,)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_in_its_space_is_refused_with_the_line_of_the_method(tmp_path, case):
    old, new, said = WRONG[case]
    assert old in ROOM
    source = ROOM.replace(old, new)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "def reset" in text)

    with pytest.raises(WorldError) as caught, boxed(tmp_path, source, 2) as world:
        world.reset(seeds(1, 1, "episode"))

    assert str(caught.value).startswith(f"env.py:{line}: {said}")


def failing(tmp_path, source, **limits):
    """What a fault in the first steps is told as."""
    with boxed(tmp_path, source, 2, limits=Limits(**limits)) as world:
        world.reset(seeds(1, 1, "episode"))
        with pytest.raises(WorldError) as caught:
            walk(world, 3)
    return str(caught.value)


def test_an_exception_is_told_with_its_own_line(tmp_path):
    source = ROOM.replace("reward, over =", "1 / (self.left - 4); reward, over =")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "1 / (" in text)

    assert failing(tmp_path, source) == f"env.py:{line}: ZeroDivisionError: division by zero"


def test_a_step_that_never_ends_is_told_with_the_line_it_stood_at(tmp_path):
    source = ROOM.replace(
        "        reward, over =", "        while self.left < 5: pass\n        reward, over ="
    )
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "while" in text)

    assert failing(tmp_path, source, call_timeout_s=2.0) == f"env.py:{line}: it took longer than 2 s"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(3)", "the environment's process is gone: it ended the process (exit code 3)"),
        ("np.zeros(1 << 42)", "MemoryError: Unable to allocate"),
    ],
)
def test_one_that_ends_its_process_or_wants_too_much_is_one_error(tmp_path, code, said):
    source = ROOM.replace("        reward, over =", f"        {code}\n        reward, over =")

    assert said in failing(tmp_path, source)


def test_user_code_cannot_take_the_shared_memory_away(tmp_path):
    """A file that shrinks under a mapping would kill whoever reads it."""
    attack = """
        import os
        for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd') else map(str, range(64)):
            try: os.ftruncate(int(name), 0)
            except OSError: pass
        reward, over ="""
    source = ROOM.replace("        reward, over =", attack.removeprefix("\n"))
    with boxed(tmp_path, source, 2) as world, boxed(tmp_path / "b", ROOM, 2) as other:
        world.reset(seeds(1, 1, "episode"))
        other.reset(seeds(1, 1, "episode"))

        same(walk(world, 8), walk(other, 8))


def test_no_process_and_no_folder_is_left_behind(tmp_path):
    with boxed(tmp_path, ROOM, 2) as world:
        root, hands = world._box.root, list(world._hands)
        assert root.exists()

    assert not root.exists()
    assert all(hand._process._popen.poll() is not None for hand in hands)


def play_custom(
    folder, source, which="DQN", entrypoint="env:MergeEnv", ports=None, *, resume=False, **sections
):
    environment = environment_of(folder.parent / "source", source, entrypoint)
    job = custom_job(which, environment, **sections)
    return play(job, folder, ports, resume=resume, environment=folder.parent / "source")


SMALL = {"training": {"max_steps": 160, "evo_steps": 80, "pop_size": 2, "test_episodes": 2}}


def files_of(folder):
    return {p.name: p.read_bytes() for p in checkpoint.state_folders(folder / "states")[-1].iterdir()}


def test_a_population_trains_on_custom_code_and_an_interrupted_run_goes_on(tmp_path):
    whole = play_custom(tmp_path / "whole", MERGE, **SMALL)
    with pytest.raises(InterruptedRunError):
        play_custom(tmp_path / "cut", MERGE, ports=Recorder(stop_after=1), **SMALL)
    play_custom(tmp_path / "cut", MERGE, resume=True, **SMALL)

    assert whole.finished.state == RunState.COMPLETED, whole.finished.message
    assert {member.member for member in whole.of("evaluation")} == {0, 1}
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "cut")


def test_a_fault_of_the_environment_fails_the_run_as_user_code(tmp_path):
    source = MERGE.replace("float(action)", "float('inf') if self.left == 3 else 1.0")

    ports = play_custom(tmp_path / "run", source, **SMALL)

    line = next(n for n, text in enumerate(source.splitlines(), 1) if "def step" in text)
    assert (ports.finished.state, ports.finished.reason) == (RunState.FAILED, FailureReason.USER_CODE)
    assert ports.finished.message == f"env.py:{line}: the reward is inf, which is no finite number"
