"""The game's own tests; they need gymnasium, PettingZoo and pytest only: `pytest tests`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "environments" / "crossing"))
from crossing import ACCELERATE, ACROSS, BRAKE, CRASHED, KEEP, STEPS, WAITING, Crossing


def placed(north: float, east: float, speed: float = 8.0) -> Crossing:
    """Both cars at these distances, equally fast."""
    env = Crossing()
    env.reset(seed=0)
    env.far, env.speed = np.array([north, east]), np.array([speed, speed])
    return env


def played(env: Crossing, north: int, east: int) -> list[dict[str, float]]:
    """What is paid while both do the same again and again."""
    paid = []
    while env.agents:
        paid.append(env.step({"north": north, "east": east})[1])
    return paid


def test_it_is_an_environment_of_several_agents() -> None:
    parallel_api_test(Crossing(), num_cycles=100)
    parallel_seed_test(Crossing, num_cycles=20)


def test_two_that_do_not_care_crash_and_both_pay() -> None:
    paid = played(placed(30.0, 30.0), KEEP, KEEP)

    assert paid[-1] == {"north": CRASHED, "east": CRASHED}


def test_one_that_goes_first_lets_both_be_across() -> None:
    paid = played(placed(20.0, 40.0), ACCELERATE, KEEP)

    assert [one["north"] for one in paid].count(ACROSS) == 1
    assert paid[-1] == {"north": 0.0, "east": ACROSS}


def test_who_stops_for_ever_pays_for_every_step_and_the_episode_ends() -> None:
    paid = played(placed(40.0, 40.0), BRAKE, BRAKE)

    assert len(paid) == STEPS
    assert sum(one["east"] for one in paid) == pytest.approx(STEPS * WAITING)


def test_each_sees_itself_first() -> None:
    seen = placed(30.0, 45.0).step({"north": KEEP, "east": KEEP})[0]

    assert seen["north"][:2] == pytest.approx(seen["east"][2:])
    assert seen["north"][0] < seen["east"][0]


def test_it_draws_two_cars() -> None:
    drawn = placed(20.0, 40.0).render()

    assert drawn.shape == (200, 200, 3)
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) == 4
