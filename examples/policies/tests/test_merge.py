"""The environment's own tests; they need gymnasium and pytest only: `pytest tests`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "environments" / "merge"))
import merge
from merge import ACCELERATE, BRAKE, CHANGE, CRASHED, KEEP, MERGED, STRANDED, MergeEnv


def placed(lane: list[float], *, speed: float = 20.0, flow: float = 20.0) -> MergeEnv:
    """Our car at the beginning of the ramp, the others at these distances."""
    env = MergeEnv()
    env.reset(seed=0)
    env.lane, env.speed, env.flow = np.array(lane, dtype=float), speed, flow
    return env


def test_it_is_an_environment() -> None:
    check_env(MergeEnv(), skip_render_check=True)


def test_a_gap_at_equal_speed_is_taken() -> None:
    env = placed([-30.0, 30.0])
    _, reward, over, _, info = env.step(CHANGE)

    assert (reward, over, info["merged"]) == (MERGED, True, True)


@pytest.mark.parametrize(("lane", "speed"), [([3.0, 30.0], 20.0), ([-8.0, 30.0], 8.0)])
def test_too_small_a_gap_is_a_crash_and_a_difference_in_speed_wants_a_larger_one(
    lane: list[float], speed: float
) -> None:
    _, reward, over, _, info = placed(lane, speed=speed).step(CHANGE)

    assert (reward, over, info["merged"]) == (CRASHED, True, False)


def test_the_end_of_the_ramp_is_the_end() -> None:
    env = placed([-90.0])
    for _ in range(200):
        _, reward, over, _, _ = env.step(KEEP)
        if over:
            break

    assert (reward, over) == (STRANDED, True)
    assert env.at >= env.ramp


def test_brakes_and_engine_have_their_limits() -> None:
    env = placed([-90.0], speed=1.0)
    env.step(BRAKE)
    assert env.speed == 0.0
    env.speed = merge.FASTEST
    env.step(ACCELERATE)
    assert env.speed == merge.FASTEST


def test_the_same_seed_is_the_same_traffic() -> None:
    first, second = MergeEnv(), MergeEnv()
    assert np.array_equal(first.reset(seed=7)[0], second.reset(seed=7)[0])
    assert np.array_equal(first.lane, second.lane)


def test_it_draws_the_road_with_every_car_in_sight() -> None:
    env = placed([-20.0, 30.0])
    drawn = env.render()

    assert drawn.shape == (48, 480, 3)
    blue = (drawn == (70, 90, 200)).all(-1).sum()
    assert blue == 2 * 8 * 15
