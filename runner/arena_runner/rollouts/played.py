"""Members that act in environments: what replay and rollout learners share.

One iteration is a slice of vector steps. All members act in the same step, each group of equal shapes in one launch;
what they then learn from is the subclass's. Randomness of a slice comes from streams named by (place, iteration), so
there is no generator whose state must be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arena_runner.policies.crew import Crew
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Dice, Memory, Seen
from arena_runner.population.lineage import mean
from arena_runner.population.member import Member
from arena_runner.rollouts.task import Iterated, Judged
from arena_runner.rollouts.worlds import Arrays, SeedOf, Stepped, World, seeds
from arena_runner.seeds import key

WAVE = 16
"""evaluation episodes of a member that run side by side"""

OpenWorld = Callable[[int, bool], World]
"""(rows, whether for evaluation) → environments"""


@dataclass(frozen=True, slots=True)
class Slice:
    """How long an iteration is, and in how many environments."""

    ticks: int
    """vector steps"""
    each: int
    """environments of a member"""

    @property
    def steps(self) -> int:
        """Environment steps of a member."""
        return self.ticks * self.each


class Playing:
    """The common part of a task; subclasses say what is kept of a step and when to learn."""

    def __init__(self, crew: Crew, open_world: OpenWorld, cut: Slice, seed: int) -> None:
        self.crew, self.cut, self.seed = crew, cut, seed
        self.members = len(crew)
        self._open = open_world
        self.world = open_world(self.members * cut.each, False)
        self._judging: dict[int, World] = {}
        self.seen = self._tensors(self.world.reset(self._seeds()))
        self._returns = np.zeros((self.members, cut.each))
        self._ended: list[list[float]] = [[] for _ in range(self.members)]
        self._last_memories: list[Memory] = []
        self._memory: list[dict[str, Tensor]] = [{} for _ in range(self.members)]

    def close(self) -> None:
        """Let go of the environments."""
        for world in (self.world, *self._judging.values()):
            world.close()

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """One slice for every member; they advance together."""
        assert len(members) == self.members
        self.crew.tell(members)
        iteration, step = members[0].iteration, members[0].step
        self._ended = [[] for _ in range(self.members)]
        self._begin(iteration)
        memories = [self._gathered(group) for group in self.crew.groups]
        dices = [self._dice("explore", group, iteration, step) for group in self.crew.groups]
        for tick in range(self.cut.ticks):
            acted = [
                self.crew.algorithm.explore(group, self.rows_of(group, self.seen), dice, memory)
                for group, dice, memory in zip(self.crew.groups, dices, memories, strict=True)
            ]
            before = self.seen
            stepped = self.world.step(self._actions(acted).flatten(0, 1).numpy())
            self.seen = self._tensors(stepped.seen)
            self._count(stepped)
            memories = self._last_memories = self._carried(acted, stepped)
            self._keep(before, acted, stepped)
            self._learn(step + tick * self.cut.each, self.cut.each)
            for dice in dices:
                dice.explored += 1
        self._scatter(memories)
        figures = self._figures()
        return {
            member.index: Iterated(
                prompts=self.cut.ticks,
                steps=self.cut.steps,
                tokens=self.cut.steps,
                signal=True,
                rate="env_steps_per_second",
                reward=mean(ended) if (ended := self._ended[member.index]) else None,
                metrics={
                    **figures[member.index],
                    **({"train/return": mean(ended), "train/episodes": len(ended)} if ended else {}),
                },
            )
            for member in members
        }

    def judge(self, places: Sequence[int], episodes: Sequence[int]) -> dict[int, Judged]:
        """Undiscounted returns of whole episodes from these seeds, the same for all places."""
        returns: list[NDArray[Any]] = []
        lengths: list[NDArray[Any]] = []
        for start in range(0, len(episodes), WAVE):
            wave = episodes[start : start + WAVE]
            paid, took = self._wave(places, wave)
            returns.append(paid)
            lengths.append(took)
        paid, took = np.concatenate(returns, 1), np.concatenate(lengths, 1)
        return {
            place: Judged(
                scores=tuple(float(value) for value in paid[n]),
                values={"episode_length": float(took[n].mean())},
            )
            for n, place in enumerate(places)
        }

    def player(self, place: int) -> Callable[[Arrays], NDArray[Any]]:
        """What a place does in one episode of one environment, step by step, as when it is judged."""
        memories: dict[int, Memory] = {}

        def act(seen: Arrays) -> NDArray[Any]:
            nonlocal memories
            actions, memories = self._greedy([place], self._tensors(seen, 1), memories)
            found: NDArray[Any] = actions.flatten(0, 1).numpy()
            return found

        return act

    def state(self) -> dict[str, Tensor]:
        """What a resume needs beside weights: environments, running returns, memory."""
        found = {f"world/{name}": value for name, value in self.world.state().items()}
        found["returns"] = torch.from_numpy(self._returns.copy())
        for place, memory in enumerate(self._memory):
            found |= {f"memory/{place}/{name}": value.contiguous() for name, value in memory.items()}
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state()`."""
        part = {name.removeprefix("world/"): v for name, v in state.items() if name.startswith("world/")}
        self.seen = self._tensors(self.world.restore(part, self._seeds()))
        self._returns = state["returns"].numpy().copy()
        for place in range(self.members):
            at = f"memory/{place}/"
            self._memory[place] = {n.removeprefix(at): v for n, v in state.items() if n.startswith(at)}

    def overwritten(self, place: int, parent: int) -> None:
        """A place has its parent's networks now: what its running episodes remembered is not theirs."""
        self._memory[place] = {}

    def pages(self, known: int) -> tuple[int, dict[str, Tensor]]:
        """What was lived through since a mark, and the new mark; nothing unless there is a replay."""
        return known, {}

    def refill(self, pages: Sequence[Mapping[str, Tensor]], written: int) -> None:
        """There is no replay to fill."""

    @property
    def kept(self) -> int:
        """Rows a replay still needs."""
        return 0

    # what subclasses say

    def _begin(self, iteration: int) -> None:
        """A slice begins."""

    def _keep(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> None:
        raise NotImplementedError

    def _learn(self, step: int, taken: int) -> None:
        """`taken` steps have been added to `step`."""
        raise NotImplementedError

    def _figures(self) -> list[dict[str, float]]:
        raise NotImplementedError

    # shared by them

    def rows_of(self, group: Group, values: Seen) -> Seen:
        """The group's rows of (N, …) tensors; the tensors themselves when it is everybody."""
        if len(group) == self.members:
            return values
        return {name: value[list(group.places)] for name, value in values.items()}

    def gathered(self, acted: Sequence[Tensor]) -> Tensor:
        """Results of the groups in order of places."""
        if len(acted) == 1:
            return acted[0]
        found = torch.empty(self.members, *acted[0].shape[1:], dtype=acted[0].dtype)
        for group, one in zip(self.crew.groups, acted, strict=True):
            found[list(group.places)] = one
        return found

    def streams(self, what: str, places: Sequence[int], iteration: int) -> list[np.random.Generator]:
        """A stream for each place, for one slice."""
        return [
            np.random.default_rng(key(self.seed, what, p, iteration) & 0x7FFFFFFFFFFFFFFF) for p in places
        ]

    def _dice(self, what: str, group: Group, iteration: int, step: int) -> Dice:
        streams = self.streams(what, group.places, iteration)
        return Dice(streams, self.cut.each, explored=step // self.cut.each)

    def _actions(self, acted: Sequence[Acted]) -> Tensor:
        return self.gathered([one.actions for one in acted])

    def _tensors(self, arrays: Arrays, members: int = 0) -> dict[str, Tensor]:
        shape = (members or self.members, -1)
        return {name: torch.from_numpy(value).unflatten(0, shape) for name, value in arrays.items()}

    def _seeds(self) -> SeedOf:
        return seeds(self.seed, self.cut.each, "episode")

    def _count(self, stepped: Stepped) -> None:
        self._returns += stepped.paid.reshape(self._returns.shape)
        if stepped.ended.any():
            for row in np.flatnonzero(stepped.ended):
                place, env = divmod(int(row), self.cut.each)
                self._ended[place].append(float(self._returns[place, env]))
                self._returns[place, env] = 0.0

    def _carried(self, acted: Sequence[Acted], stepped: Stepped) -> list[Memory]:
        """What the next step remembers: nothing where an episode ended."""
        if not any(one.memory for one in acted):
            return [{}] * len(acted)
        goes_on = torch.from_numpy(~stepped.ended).unflatten(0, (self.members, -1))
        return [
            {
                name: value * goes_on[list(group.places)].reshape(*value.shape[:2], *[1] * (value.dim() - 2))
                for name, value in one.memory.items()
            }
            for group, one in zip(self.crew.groups, acted, strict=True)
        ]

    def _gathered(self, group: Group) -> Memory:
        return joined([self._memory[place] for place in group.places])

    def _scatter(self, memories: Sequence[Memory]) -> None:
        for group, memory in zip(self.crew.groups, memories, strict=True):
            for row, place in enumerate(group.places):
                self._memory[place] = {name: value[row] for name, value in memory.items()}

    def _wave(self, places: Sequence[int], wave: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns and lengths (places, episodes) of the first episode of every row."""
        count, each = len(places), len(wave)
        if (world := self._judging.get(count * each)) is None:
            world = self._judging[count * each] = self._open(count * each, True)
        seen = world.reset(lambda row, _: wave[row % each])
        paid, took = np.zeros((2, count * each))
        going = np.ones(count * each, dtype=np.bool_)
        memories: dict[int, Memory] = {}
        while going.any():
            actions, memories = self._greedy(places, self._tensors(seen, count), memories)
            stepped = world.step(actions.flatten(0, 1).numpy())
            paid += np.where(going, stepped.paid, 0.0)
            took += going
            going &= ~stepped.ended
            seen = stepped.seen
        return paid.reshape(count, each), took.reshape(count, each)

    def _greedy(
        self, places: Sequence[int], seen: Seen, memories: Mapping[int, Memory]
    ) -> tuple[Tensor, dict[int, Memory]]:
        after: dict[int, Memory] = {}
        found: Tensor | None = None
        for number, group in enumerate(self.crew.groups):
            rows = [group.places.index(place) for place in places if place in group.places]
            if not rows:
                continue
            whole = rows == list(range(len(group)))
            part = group if whole else group.subset(rows)
            at = [places.index(place) for place in part.places]
            mine = seen if len(at) == len(places) else {name: value[at] for name, value in seen.items()}
            acted = self.crew.algorithm.greedy(part, mine, memories.get(number, {}))
            after[number] = acted.memory
            if len(at) == len(places):
                return acted.actions, after
            if found is None:
                found = torch.empty(len(places), *acted.actions.shape[1:], dtype=acted.actions.dtype)
            found[at] = acted.actions
        assert found is not None
        return found, after


def joined(memories: Sequence[Memory]) -> Memory:
    """Memories of some places as one; one that is missing is blank."""
    known = next((memory for memory in memories if memory), None)
    if known is None:
        return {}
    return {
        name: torch.stack([m[name] if m else torch.zeros_like(value) for m in memories])
        for name, value in known.items()
    }
