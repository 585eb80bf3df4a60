"""Learning from rollouts: `learn_step` environment steps of a member, then a few passes over them.

Members may collect rollouts of different lengths; those of equal shape whose rollouts end in the same step learn in
one launch. A rollout goes on over the end of an iteration, so it is part of the resume state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arena_runner.policies.crew import Crew
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Seen
from arena_runner.population.member import Member
from arena_runner.rollouts.played import OpenWorld, Playing, Slice
from arena_runner.rollouts.task import Iterated
from arena_runner.rollouts.worlds import Stepped

Rows = dict[str, Tensor]


class Collected(Playing):
    """A task of an on-policy algorithm."""

    def __init__(self, crew: Crew, open_world: OpenWorld, cut: Slice, seed: int) -> None:
        super().__init__(crew, open_world, cut, seed)
        self._rows: Rows = {}
        """(N, longest, E, …)"""
        self._filled = [0] * len(crew)
        self._iteration = 0
        self._sequence = 0
        """steps that are learned as one; 0: rows are learned apart"""
        self._learned = [0] * len(crew)
        self._sums: list[dict[str, float]] = []
        self._updates: list[int] = []

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """One slice for every member."""
        self._iteration = members[0].iteration
        return super().iterate(members)

    def state(self) -> dict[str, Tensor]:
        """The unfinished rollouts beside the rest."""
        found = {**super().state(), "filled": torch.tensor(self._filled)}
        longest = max(self._filled)
        return found | {f"rows/{name}": value[:, :longest].contiguous() for name, value in self._rows.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state()`."""
        super().restore(state)
        self._filled = state["filled"].tolist()
        self._rows = {n.removeprefix("rows/"): v for n, v in state.items() if n.startswith("rows/")}

    def overwritten(self, place: int, parent: int) -> None:
        """What a place has collected was another policy's: it is thrown away."""
        super().overwritten(place, parent)
        self._filled[place] = 0

    def _begin(self, iteration: int) -> None:
        self._learned = [0] * self.members
        self._sums = [{} for _ in range(self.members)]
        self._updates = [0] * self.members

    def _keep(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> None:
        shape = (self.members, self.cut.each)
        reward = torch.from_numpy(stepped.reward).unflatten(0, shape)
        ended = torch.from_numpy(stepped.ended).view(shape)
        row = {
            **{f"seen/{name}": value for name, value in before.items()},
            **{name: self.gathered([one.kept[name] for one in acted]) for name in acted[0].kept},
            "actions": self._actions(acted),
            "reward": self._with_cut_off(reward, acted, stepped),
            "ended": ended.float(),
        }
        self._make_room(row)
        at = set(self._filled)
        for name, value in row.items():
            if len(at) == 1:
                self._rows[name][:, self._filled[0]] = value
            else:
                for place, filled in enumerate(self._filled):
                    self._rows[name][place, filled] = value[place]
        self._filled = [filled + 1 for filled in self._filled]

    def _with_cut_off(self, reward: Tensor, acted: Sequence[Acted], stepped: Stepped) -> Tensor:
        """Rewards, with what would have followed where an episode was cut off rather than over."""
        if not stepped.truncated.any():
            return reward
        after = self._tensors(stepped.after)
        follows = self.gathered(
            [
                counted(
                    self.algorithm.value(group, self.rows_of(group, after), one.memory), group.of("gamma")
                )
                for group, one in zip(self.crew.groups, acted, strict=True)
            ]
        )
        cut = torch.from_numpy(stepped.truncated & ~stepped.terminated).view(reward.shape)
        return torch.where(cut, reward + follows, reward)

    @property
    def algorithm(self) -> Any:
        """The maths, which also has `value`."""
        return self.crew.algorithm

    def _length(self, group: Group, row: int) -> int:
        """Vector steps of a member's rollout."""
        return math.ceil(int(group.own["learn_step"][row]) / self.cut.each)

    def _make_room(self, row: Mapping[str, Tensor]) -> None:
        longest = max(self._length(group, n) for group in self.crew.groups for n in range(len(group)))
        longest = max(longest, max(self._filled) + 1)
        for name, value in row.items():
            have = self._rows.get(name)
            if have is None or have.shape[1] < longest:
                made = torch.zeros(self.members, longest, *value.shape[1:], dtype=value.dtype)
                if have is not None:
                    made[:, : have.shape[1]] = have
                self._rows[name] = made

    def _learn(self, step: int, taken: int) -> None:
        for number, group in enumerate(self.crew.groups):
            due: dict[int, list[int]] = {}
            for row, place in enumerate(group.places):
                if self._filled[place] >= self._length(group, row):
                    due.setdefault(self._filled[place], []).append(row)
            for length, rows in due.items():
                whole = len(rows) == len(group)
                part = group if whole else group.subset(rows)
                self._improve(part, length, self._memory_after(number, rows))
                if not whole:
                    group.take_back(part, rows)
                for place in part.places:
                    self._filled[place] = 0
                    self._learned[place] += 1

    def _memory_after(self, number: int, rows: Sequence[int]) -> Mapping[str, Tensor]:
        """What some members of a group remember now."""
        return {name: value[list(rows)] for name, value in self._last_memories[number].items()}

    def _improve(self, group: Group, length: int, memory: Mapping[str, Tensor]) -> None:
        """A few passes over the rollouts of a group."""
        places = list(group.places)
        rows = {name: value[places, :length] for name, value in self._rows.items()}
        now = {name: value[places] for name, value in self.seen.items()}
        gamma, share = group.of("gamma"), group.of("gae_lambda")
        last = self.algorithm.value(group, now, memory)
        advantage = advantages(rows["reward"], rows["value"], rows["ended"], last, gamma=gamma, share=share)
        rows["advantage"], rows["returns"] = advantage, advantage + rows["value"]
        self._sequence = sequence_length(self.algorithm, group, length)
        flat = {name: cut_up(value, self._sequence) for name, value in rows.items()}
        streams = self.streams("minibatches", [*places], self._iteration * 4096 + self._learned[places[0]])
        orders = [self._order(group, row, flat["reward"].shape[1], streams[row]) for row in range(len(group))]
        self._passes(group, flat, orders)

    def _order(self, group: Group, row: int, count: int, stream: Any) -> list[Tensor]:
        """The minibatches of one member, over all its passes."""
        size = min(max(1, int(group.own["batch_size"][row]) // (self._sequence or 1)), count)
        epochs = int(group.own["update_epochs"][row])
        return [
            piece for _ in range(epochs) for piece in torch.from_numpy(stream.permutation(count)).split(size)
        ]

    def _passes(self, group: Group, flat: Rows, orders: Sequence[Sequence[Tensor]]) -> None:
        stopped: set[int] = set()
        for count in range(max(map(len, orders))):
            rows = [row for row in range(len(group)) if count < len(orders[row]) and row not in stopped]
            if not rows:
                return
            whole = len(rows) == len(group)
            part = group if whole else group.subset(rows)
            batch = minibatch(flat, rows, [orders[row][count] for row in rows])
            figures = self.crew.algorithm.update(part, batch)
            if not whole:
                group.take_back(part, rows)
            self._note(part, figures)
            limit = group.fixed("target_kl")
            if limit is not None:
                stopped |= {
                    row for row, kl in zip(rows, figures["kl"].tolist(), strict=True) if kl > 1.5 * limit
                }

    def _note(self, group: Group, figures: Mapping[str, Tensor]) -> None:
        for name, column in figures.items():
            for place, value in zip(group.places, column.tolist(), strict=True):
                self._sums[place][name] = self._sums[place].get(name, 0.0) + value
        for place in group.places:
            self._updates[place] += 1

    def _figures(self) -> list[dict[str, float]]:
        return [
            {"updates": float(count), **{name: value / count for name, value in sums.items()}}
            if count
            else {"updates": 0.0}
            for sums, count in zip(self._sums, self._updates, strict=True)
        ]


def advantages(
    reward: Tensor, value: Tensor, ended: Tensor, last: Tensor, *, gamma: Tensor, share: Tensor
) -> Tensor:
    """Generalised advantages (N, T, E), or (N, T, E, agents), with `ended` (N, T, E) and columns (N,).

    `last` (N, E, …) is the value of what comes after the rollout.
    """
    found = torch.empty_like(reward)
    ahead, follows = torch.zeros_like(last), last
    ended = ended.unflatten(-1, (-1, *[1] * (reward.dim() - 3)))
    for t in range(reward.shape[1] - 1, -1, -1):
        goes_on = 1 - ended[:, t]
        delta = reward[:, t] + counted(follows * goes_on, gamma) - value[:, t]
        ahead = delta + counted(goes_on * ahead, gamma * share)
        found[:, t] = ahead
        follows = value[:, t]
    return found


def counted(values: Tensor, column: Tensor) -> Tensor:
    """Values (N, …) times each member's own factor (N,)."""
    return values * column.view(-1, *[1] * (values.dim() - 1))


def sequence_length(algorithm: Any, group: Group, length: int) -> int:
    """The longest part of a rollout that divides it and is not longer than the algorithm wants; 0 without memory."""
    if not hasattr(algorithm, "longest"):
        return 0
    most = min(length, algorithm.longest(group.knobs))
    return next(steps for steps in range(most, 0, -1) if length % steps == 0)


def cut_up(rows: Tensor, sequence: int) -> Tensor:
    """A column (N, T, E, …) as rows (N, T*E, …), or as sequences (N, T/S*E, S, …)."""
    if not sequence:
        return rows.flatten(1, 2)
    pieces: Tensor = rows.unflatten(1, (-1, sequence))  # (N, T/S, S, E, …)
    return pieces.transpose(2, 3).flatten(1, 2)


def minibatch(flat: Rows, members: Sequence[int], picks: Sequence[Tensor]) -> Batch:
    """The picked rows of some members, padded to the longest with rows of weight 0."""
    widest = max(map(len, picks))
    index = torch.zeros(len(picks), widest, dtype=torch.int64)
    weight = torch.zeros(len(picks), widest)
    for n, pick in enumerate(picks):
        index[n, : len(pick)], weight[n, : len(pick)] = pick, 1 / len(pick)
    count = next(iter(flat.values())).shape[1]
    index = (index + torch.tensor(members).unsqueeze(1) * count).flatten()
    rows = {
        name: value.flatten(0, 1).index_select(0, index).unflatten(0, weight.shape)
        for name, value in flat.items()
    }
    seen = {name.removeprefix("seen/"): rows.pop(name) for name in [*rows] if name.startswith("seen/")}
    return Batch(seen=seen, actions=rows.pop("actions"), weight=weight, kept=rows)
