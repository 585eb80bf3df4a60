"""All members' environments in one step: every row happened, seeds decide, and a saved world goes on."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from arena_runner.rollouts.worlds import Native, Plain, WorldError, open_registered, seeds

ROWS = 6


def plain(rows=ROWS, longest=None):
    limits = {} if longest is None else {"max_episode_steps": longest}
    return Plain(lambda: gymnasium.make("CartPole-v1", **limits), rows)


def walk(world, steps, *, start=0):
    """Observations, rewards and ends of a fixed sequence of actions."""
    told = []
    for step in range(start, start + steps):
        actions = np.array([[(step * 7 + row * 3) % 5 % 2] for row in range(world.rows)])
        done = world.step(actions)
        told.append((done.seen["obs"], done.after["obs"], done.reward, done.terminated, done.truncated))
    return told


def test_cartpole_as_one_array_is_the_ordinary_cartpole():
    native, ordinary = open_registered("CartPole-v1", ROWS, {}), plain()
    assert isinstance(native, Native)
    first, second = (world.reset(seeds(3, 2, "episode")) for world in (native, ordinary))

    assert np.allclose(first["obs"], second["obs"])
    ended = 0
    for ours, theirs in zip(walk(native, 120), walk(ordinary, 120), strict=True):
        assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))
        ended += int(ours[3].sum())
    assert ended > ROWS


@pytest.mark.parametrize("kind", ["native", "plain"])
def test_every_row_of_a_step_was_played(kind):
    """No padding after an end: what was seen before and after belong to one episode, and each step is paid."""
    world = open_registered("CartPole-v1", ROWS, {}) if kind == "native" else plain()
    seen = world.reset(seeds(3, 2, "episode"))["obs"]
    ends = 0
    for _ in range(150):
        done = world.step(np.ones((ROWS, 1), dtype=np.int64))
        assert (done.reward == 1).all()
        moved = np.abs(done.after["obs"][:, 0] - seen[:, 0] - 0.02 * seen[:, 1])
        assert moved.max() < 1e-4  # the position follows from the one before: nothing was reset in between
        fresh = done.seen["obs"][done.ended]
        assert (np.abs(fresh) <= 0.05).all()
        ends += int(done.ended.sum())
        seen = done.seen["obs"]
    assert ends > ROWS


def test_an_episode_that_is_cut_off_is_no_end():
    world = open_registered("CartPole-v1", 2, {}, longest=3)
    world.reset(seeds(3, 2, "episode"))

    last = walk(world, 3)[-1]

    assert last[4].all()
    assert not last[3].any()


def test_seeds_tell_places_environments_and_episodes_apart():
    of = seeds(1, 2, "episode")
    drawn = {of(row, episode) for row in range(4) for episode in range(3)}

    assert len(drawn) == 12
    assert of(0, 0) == seeds(1, 2, "episode")(0, 0) != seeds(2, 2, "episode")(0, 0)


@pytest.mark.parametrize("kind", ["native", "plain"])
def test_a_saved_world_goes_on_where_it_stood(kind):
    def make():
        return open_registered("CartPole-v1", ROWS, {}) if kind == "native" else plain()

    world, of = make(), seeds(5, 2, "episode")
    world.reset(of)
    walk(world, 37)
    state = {name: value.clone() for name, value in world.state().items()}
    whole = walk(world, 30, start=37)

    again = make()
    again.restore(state, of)

    for ours, theirs in zip(walk(again, 30, start=37), whole, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_an_id_that_is_not_registered_is_one_error():
    with pytest.raises(WorldError, match="CartPole-v99"):
        open_registered("CartPole-v99", 1, {})


def test_in_a_world_that_judges_a_row_rests_after_its_episode():
    class Counted(gymnasium.Wrapper):
        steps = 0

        def step(self, action):
            self.steps += 1
            return super().step(action)

    envs = []

    def make():
        envs.append(Counted(gymnasium.make("CartPole-v1", max_episode_steps=12)))
        return envs[-1]

    resting, going_on = Plain(make, ROWS, once=True), plain(longest=12)
    for world in (resting, going_on):
        world.reset(seeds(3, 2, "episode"))
    ours, theirs = walk(resting, 20), walk(going_on, 20)

    ended = np.array([step[3] | step[4] for step in theirs])
    first = [int(np.flatnonzero(column)[0]) for column in ended.T]
    assert [env.steps for env in envs] == [n + 1 for n in first]
    for row, last in enumerate(first):
        assert [step[2][row] for step in ours] == [1.0] * (last + 1) + [0.0] * (19 - last)
        assert all(
            np.array_equal(a[1][row], b[1][row]) for a, b in zip(ours[: last + 1], theirs, strict=False)
        )
