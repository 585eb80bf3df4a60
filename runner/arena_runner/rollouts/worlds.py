"""All members' environments in one vector step.

A world holds `places x each` environments in order. An episode that ends is followed by the next one within the same
step, so that every row of a step is a transition that happened: nothing is padded, nothing is counted that was not
played. The k-th episode of an environment starts from a seed that is a function of (run, place, environment, k).

A world that judges plays one episode in every row: a row that has ended rests until the next reset, where stepping it
costs something.

Three kinds: `Native` steps an environment whose physics Gymnasium itself has as one array (CartPole), `Plain` steps
ordinary environments one by one, and `boxes.Boxed` does that in sandboxed processes. Their state can be saved: native
ones have it in arrays, plain ones are brought back by playing the running episode's actions again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner.policies import spaces
from arena_runner.policies.port import MASK
from arena_runner.policies.spaces import Crowd, Spaces
from arena_runner.rollouts.diary import Diary
from arena_runner.seeds import key

Arrays = dict[str, NDArray[Any]]
SeedOf = Callable[[int, int], int]
"""(row, episode) → the seed of that episode"""


class WorldError(ArenaError):
    """An environment cannot be made, or does not do what it says."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step of every environment."""

    seen: Arrays
    """part → (rows, …): what is seen now, after a reset where an episode ended"""
    after: Arrays
    """what the action led to; the same arrays unless an episode ended"""
    reward: NDArray[np.float32]
    """(rows,), or (rows, agents) where there are several; the same of what follows"""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended (rows,)."""
        over: NDArray[np.bool_] = self.terminated | self.truncated
        return over if over.ndim == 1 else np.logical_and.reduce(over, axis=1)

    @property
    def paid(self) -> NDArray[np.float32]:
        """What the step paid, to all agents together (rows,)."""
        total: NDArray[np.float32] = self.reward if self.reward.ndim == 1 else self.reward.sum(1)
        return total


class World(Protocol):
    """Environments of all members."""

    rows: int

    @property
    def spaces(self) -> Spaces | Crowd:
        """What is seen and done, by one agent or several."""
        ...

    def reset(self, seed_of: SeedOf) -> Arrays:
        """Must begin episode 0 of every row."""
        ...

    def step(self, actions: NDArray[Any]) -> Stepped:
        """One action (rows, k) each. Must begin the next episode where one ended."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Must be enough for `restore` to go on from here."""
        ...

    def restore(self, state: Mapping[str, Tensor], seed_of: SeedOf) -> Arrays:
        """Must see what was seen when the state was taken."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Native:
    """CartPole as one array, with the starts an ordinary one would have."""

    def __init__(self, vector: CartPoleVectorEnv, rows: int) -> None:
        self._vector, self.rows = vector, rows
        self.spaces = spaces.read(vector.single_observation_space, vector.single_action_space)
        self._episodes = np.zeros(rows, dtype=np.int64)

    def reset(self, seed_of: SeedOf) -> Arrays:
        """Begin anew."""
        self._vector.reset(seed=0)
        self._episodes[:] = 0
        self._seed_of = seed_of
        self._begin(range(self.rows))
        return self._seen()

    def step(self, actions: NDArray[Any]) -> Stepped:
        """One array operation for all; what ended begins again at once."""
        vector = self._vector
        seen, reward, terminated, truncated, _ = vector.step(actions[:, 0])
        after = {spaces.ONE: seen}
        ended = np.flatnonzero(vector.prev_done)
        if not len(ended):
            return Stepped(after, after, reward, terminated, truncated)
        self._episodes[ended] += 1
        self._begin(ended)
        vector.prev_done[:] = False
        return Stepped(self._seen(), after, reward, terminated, truncated)

    def state(self) -> dict[str, Tensor]:
        """Positions, clocks, episodes."""
        vector = self._vector
        return {
            "positions": torch.from_numpy(np.array(vector.state)),
            "clocks": torch.from_numpy(np.array(vector.steps)),
            "episodes": torch.from_numpy(self._episodes.copy()),
        }

    def restore(self, state: Mapping[str, Tensor], seed_of: SeedOf) -> Arrays:
        """Go on."""
        self.reset(seed_of)
        self._vector.state = state["positions"].numpy().copy()
        self._vector.steps = state["clocks"].numpy().copy()
        self._episodes = state["episodes"].numpy().copy()
        return self._seen()

    def close(self) -> None:
        """Nothing is held."""

    def _begin(self, rows: Iterator[int] | Sequence[int] | range | NDArray[Any]) -> None:
        for row in rows:
            dice = np.random.default_rng(self._seed_of(int(row), int(self._episodes[row])))
            self._vector.state[:, row] = dice.uniform(-0.05, 0.05, size=4)
            self._vector.steps[row] = 0

    def _seen(self) -> Arrays:
        return {spaces.ONE: self._vector.state.T.astype(np.float32)}


class Plain:
    """Ordinary environments, one after another in this process."""

    def __init__(self, make: Callable[[], Any], rows: int, *, once: bool = False) -> None:
        """So many environments; of one episode each until the next reset, where it is `once`."""
        self.rows, self._once = rows, once
        self._envs = [make() for _ in range(rows)]
        first = self._envs[0]
        self.spaces = spaces.read(first.observation_space, first.action_space)
        self._diary = Diary.of(self.spaces.does, rows)
        self._going: Sequence[int] = range(rows)

    def reset(self, seed_of: SeedOf) -> Arrays:
        """Begin anew."""
        self._seed_of = seed_of
        self._diary.clear()
        self._going = range(self.rows)
        self._now = [self._begin(row) for row in range(self.rows)]
        return stacked(self.spaces, self._now)

    def step(self, actions: NDArray[Any]) -> Stepped:
        """One by one."""
        wanted = spaces.decode(self.spaces.does, actions)
        reward = np.zeros(self.rows, dtype=np.float32)
        terminated, truncated = np.zeros((2, self.rows), dtype=np.bool_)
        after = list(self._now)
        for row in self._going:
            answer = self._envs[row].step(wanted[row])
            after[row] = with_mask(answer[0], answer[4])
            reward[row], terminated[row], truncated[row] = answer[1:4]
        self._diary.note(actions, terminated | truncated)
        ended = np.flatnonzero(terminated | truncated).tolist()
        self._now = list(after)
        led = stacked(self.spaces, after)
        if self._once:
            self._going = [row for row in self._going if row not in ended]
        if self._once or not ended:
            return Stepped(led, led, reward, terminated, truncated)
        for row in ended:
            self._now[row] = self._begin(row)
        return Stepped(stacked(self.spaces, self._now), led, reward, terminated, truncated)

    def state(self) -> dict[str, Tensor]:
        """Which episode every environment is in, and what was done in it."""
        return self._diary.state()

    def restore(self, state: Mapping[str, Tensor], seed_of: SeedOf) -> Arrays:
        """Play the running episodes again."""
        self._seed_of = seed_of
        self._diary.restore(state)
        self._going = range(self.rows)
        self._now = [self._begin(row) for row in range(self.rows)]
        for row, env in enumerate(self._envs):
            for action in self._diary.played[row]:
                answer = env.step(spaces.decode(self.spaces.does, action[None])[0])
                self._now[row] = with_mask(answer[0], answer[4])
        return stacked(self.spaces, self._now)

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            with contextlib.suppress(Exception):  # some have nothing to close and say so loudly
                env.close()

    def _begin(self, row: int) -> dict[str, Any]:
        seed = self._seed_of(row, int(self._diary.episodes[row]))
        seen, info = self._envs[row].reset(seed=seed)
        return with_mask(seen, info)


def stacked(space: Spaces, observations: Sequence[Mapping[str, Any]]) -> Arrays:
    """Observations of all rows, part by part, as they are stored."""
    found = {
        name: spaces.encode(
            part, np.stack([np.asarray(one[name]) for one in observations]), len(observations)
        )
        for name, part in space.sees.items()
    }
    if MASK in observations[0] and MASK not in space.sees:
        found[MASK] = np.stack([np.asarray(one[MASK], dtype=np.float32).ravel() for one in observations])
    return found


def with_mask(seen: Any, info: Mapping[str, Any]) -> dict[str, Any]:
    """An observation by parts; the mask of allowed actions comes with the info, or as a part of its own."""
    parts = spaces.flatten(seen)
    if MASK in info:
        parts[MASK] = info[MASK]
    return parts


def seeds(seed: int, each: int, what: str) -> SeedOf:
    """Seeds of episodes, by place and environment; `what` tells training from evaluation."""

    def of(row: int, episode: int) -> int:
        return key(seed, what, row // each, row % each, episode) & 0x7FFFFFFF

    return of


def shared_seeds(seed: int, each: int, what: str) -> SeedOf:
    """The same episodes for every place."""

    def of(row: int, episode: int) -> int:
        return key(seed, what, row % each, episode) & 0x7FFFFFFF

    return of


def open_registered(
    gym_id: str, rows: int, options: Mapping[str, Any], longest: int | None = None, *, once: bool = False
) -> World:
    """Environments of a registered id; WorldError when there is no such id or its library is missing."""
    try:
        spec = gymnasium.spec(gym_id)
        native = spec.vector_entry_point and spec.id.startswith("CartPole-") and not options
        if native:
            steps = spec.max_episode_steps or 500
            limit = min(steps, longest or steps)
            return Native(CartPoleVectorEnv(rows, max_episode_steps=limit), rows)
        limits = {} if longest is None else {"max_episode_steps": longest}
        made = {"disable_env_checker": True, **limits, **options}
        return Plain(lambda: gymnasium.make(gym_id, **made), rows, once=once)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise WorldError(f"environment {gym_id} cannot be made: {error}") from error
