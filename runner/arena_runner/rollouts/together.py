"""Environments of several agents that act at the same time: PettingZoo's parallel ones, stepped one by one.

Rewards and ends are columns of agents. All agents of an environment begin and end an episode together: one that leaves
before the others has no room. State is saved as that of ordinary environments is, by the actions of the running episode.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from arena_gitops.spec.inputs import PETTINGZOO
from arena_runner.policies import spaces
from arena_runner.policies.spaces import Crowd
from arena_runner.rollouts.diary import Diary
from arena_runner.rollouts.worlds import Arrays, SeedOf, Stepped, WorldError, stacked, with_mask

_Step = tuple[dict[str, Any], NDArray[Any], NDArray[Any], NDArray[Any]]


class Together:
    """A world of several agents."""

    def __init__(
        self, make: Callable[[], Any], rows: int, longest: int | None = None, *, once: bool = False
    ) -> None:
        """So many environments; of one episode each until the next reset, where it is `once`."""
        self.rows, self._longest, self._once = rows, longest, once
        self._going: Sequence[int] = range(rows)
        self.envs = [make() for _ in range(rows)]
        first = self.envs[0]
        self._agents = [str(agent) for agent in first.possible_agents]
        self.spaces = Crowd(
            agents={a: spaces.read(first.observation_space(a), first.action_space(a)) for a in self._agents}
        )
        self._places = self.spaces.places()
        width = max(place.stop for place in self._places.values())
        self._diary = Diary(rows, width, whole=self.spaces.whole)

    def reset(self, seed_of: SeedOf) -> Arrays:
        """Begin anew."""
        self._seed_of = seed_of
        self._diary.clear()
        self._going = range(self.rows)
        self._now = [self._begin(row) for row in range(self.rows)]
        return self._stacked(self._now)

    def step(self, actions: NDArray[Any]) -> Stepped:
        """One by one; an episode that ends is followed by the next."""
        shape = (self.rows, len(self._agents))
        reward = np.zeros(shape, dtype=np.float32)
        terminated, truncated = np.zeros((2, *shape), dtype=np.bool_)
        after = list(self._now)
        for row in self._going:
            after[row], reward[row], terminated[row], truncated[row] = self._step(row, actions[row])
        self._now = list(after)
        led = self._stacked(after)
        ended = np.flatnonzero((terminated | truncated).all(1)).tolist()
        if self._once:
            self._going = [row for row in self._going if row not in ended]
        if self._once or not ended:
            return Stepped(led, led, reward, terminated, truncated)
        for row in ended:
            self._diary.episodes[row] += 1
            self._now[row] = self._begin(row)
        return Stepped(self._stacked(self._now), led, reward, terminated, truncated)

    def state(self) -> dict[str, Tensor]:
        """Which episode every environment is in, and what was done in it."""
        return self._diary.state()

    def restore(self, state: Mapping[str, Tensor], seed_of: SeedOf) -> Arrays:
        """Play the running episodes again."""
        self._seed_of = seed_of
        self._diary.restore(state)
        running = list(self._diary.played)
        self._now = [self._begin(row) for row in range(self.rows)]
        for row, actions in enumerate(running):
            for action in actions:
                self._now[row] = self._step(row, action)[0]
        return self._stacked(self._now)

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            with contextlib.suppress(Exception):  # some have nothing to close and say so loudly
                env.close()

    def _begin(self, row: int) -> dict[str, Any]:
        self._diary.played[row] = []
        seed = self._seed_of(row, int(self._diary.episodes[row]))
        seen, info = self.envs[row].reset(seed=seed)
        return self._parts(seen, info)

    def _step(self, row: int, numbers: NDArray[Any]) -> _Step:
        """What all agents see, and what each was paid and whether it is over for it."""
        wanted = {
            agent: spaces.decode(self.spaces.agents[agent].does, numbers[None, place])[0]
            for agent, place in self._places.items()
        }
        played = self._diary.played[row]
        played.append(numbers.copy())
        seen, paid, over, cut, info = self.envs[row].step(wanted)
        reward, terminated, truncated = (
            np.array([told.get(a, 0) for a in self._agents]) for told in (paid, over, cut)
        )
        truncated = truncated.astype(np.bool_) | (len(played) == self._longest)
        gone = terminated.astype(np.bool_) | truncated
        if gone.any() and not gone.all():
            names = ", ".join(a for a, left in zip(self._agents, gone, strict=True) if left)
            raise WorldError(f"{names} left before the other agents did: that has no room yet")
        return self._parts(seen, info), reward, terminated, truncated

    def _parts(self, seen: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
        absent = [agent for agent in self._agents if agent not in seen]
        if absent:
            raise WorldError(f"the environment shows nothing to {', '.join(absent)}: that has no room yet")
        return {
            f"{agent}/{name}": value
            for agent in self._agents
            for name, value in with_mask(seen[agent], info.get(agent) or {}).items()
        }

    def _stacked(self, rows: list[dict[str, Any]]) -> Arrays:
        found: Arrays = {}
        for agent, own in self.spaces.agents.items():
            at = f"{agent}/"
            mine = [{n.removeprefix(at): v for n, v in row.items() if n.startswith(at)} for row in rows]
            found |= {at + name: value for name, value in stacked(own, mine).items()}
        return found


def open_parallel(
    name: str, rows: int, options: Mapping[str, Any], longest: int | None = None, *, once: bool = False
) -> Together:
    """Environments of one of PettingZoo's modules; WorldError when there is none or it is not installed."""
    if not PETTINGZOO.fullmatch(name):
        raise WorldError(
            f"{name} is no environment of several agents: name a module such as mpe2.simple_spread_v3"
        )
    try:
        module = importlib.import_module(name)
        return Together(lambda: module.parallel_env(**options), rows, longest, once=once)
    except (ImportError, AttributeError, TypeError) as error:
        raise WorldError(f"environment {name} cannot be made: {error}") from error
