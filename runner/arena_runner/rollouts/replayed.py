"""Learning from replay: every step of every member is kept, updates sample from what was kept.

`learn_step` is one update per so many environment steps of a member, counted by the place's own clock, so a member
with 16 environments and `learn_step: 4` makes four updates after each vector step. The one ring is shared by the
population unless `experience_sharing: false`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arena_gitops.spec.manifest.sections import ClassicTraining, ReplayBuffer
from arena_runner.policies.crew import Crew
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Seen
from arena_runner.policies.spaces import Crowd
from arena_runner.rollouts.played import OpenWorld, Playing, Slice
from arena_runner.rollouts.replay import Columns, Replay
from arena_runner.rollouts.worlds import Stepped


class Replayed(Playing):
    """A task of an off-policy algorithm."""

    def __init__(
        self,
        crew: Crew,
        open_world: OpenWorld,
        cut: Slice,
        seed: int,
        *,
        training: ClassicTraining,
        buffer: ReplayBuffer,
    ) -> None:
        super().__init__(crew, open_world, cut, seed)
        self._delay = training.learning_delay
        self.replay = Replay(1 if training.experience_sharing is not False else len(crew), buffer.max_size)
        draws = getattr(crew.algorithm, "draws", None)
        spaces = crew.spaces
        self._draws: int = draws(spaces if isinstance(spaces, Crowd) else spaces.does) if draws else 0
        self._sums: list[dict[str, Tensor]] = [{} for _ in range(len(crew))]
        self._updates = [0] * len(crew)

    def state(self) -> dict[str, Tensor]:
        """The marks of the replay beside the rest; its rows are pages."""
        return {**super().state(), "written": torch.tensor(self.replay.written)}

    def pages(self, known: int) -> tuple[int, dict[str, Tensor]]:
        """The page since a mark."""
        return self.replay.written, self.replay.since(known)

    def refill(self, pages: Sequence[Mapping[str, Tensor]], written: int) -> None:
        """Lay pages back where they lay."""
        rows = sum(next(iter(page.values())).shape[1] for page in pages if page)
        self.replay.written = written - rows
        for page in pages:
            if page:
                self.replay.append(page)

    @property
    def kept(self) -> int:
        """The ring's capacity."""
        return self.replay.capacity

    def _begin(self, iteration: int) -> None:
        self._streams = self.streams("replay", range(self.members), iteration)
        self._sums = [{} for _ in range(self.members)]
        self._updates = [0] * self.members

    def _keep(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> None:
        self.replay.add(self._row(before, acted, stepped))

    def _row(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> Columns:
        """One step of everybody, (N, E, …) of every column."""
        after = self.seen if stepped.after is stepped.seen else self._tensors(stepped.after)
        shape = (self.members, self.cut.each)
        return {
            **{f"seen/{name}": value for name, value in before.items()},
            **{f"after/{name}": value for name, value in after.items()},
            "actions": self._actions(acted),
            "reward": torch.from_numpy(stepped.reward).unflatten(0, shape),
            "over": torch.from_numpy(stepped.terminated).unflatten(0, shape).float(),
        }

    def _learn(self, step: int, taken: int) -> None:
        if step + taken <= self._delay:
            return
        for group in self.crew.groups:
            due = [self._due(group, row, step, taken) for row in range(len(group))]
            if not any(due):
                continue
            if min(due) == max(due):
                self._update(group, due[0])
                continue
            for count in range(max(due)):
                rows = [row for row, times in enumerate(due) if times > count]
                part = group.subset(rows)
                self._update(part, 1)
                group.take_back(part, rows)

    def _due(self, group: Group, row: int, step: int, taken: int) -> int:
        every, size = (int(group.own[name][row]) for name in ("learn_step", "batch_size"))
        return 0 if len(self.replay) < size else (step + taken) // every - step // every

    def _update(self, group: Group, times: int) -> None:
        """So many updates in a row for all of a group, sampled in one go."""
        sizes = [int(size) for size in group.own["batch_size"]]
        widest = max(sizes)
        weight = torch.tensor([[1.0 / size] * size + [0.0] * (widest - size) for size in sizes])
        picked = torch.zeros(len(group), times, widest, dtype=torch.int64)
        for n, (place, size) in enumerate(zip(group.places, sizes, strict=True)):
            drawn = self._streams[place].integers(0, len(self.replay), (times, size))
            picked[n, :, :size] = torch.from_numpy(drawn)
        places = torch.tensor(group.places)
        taken = self.replay.take(places, picked.flatten(1))
        for count in range(times):
            cut = slice(count * widest, (count + 1) * widest)
            columns = {name: value[:, cut] for name, value in taken.items()}
            batch = as_batch(columns, weight, group.of("gamma"), self._noise(group, widest))
            self._note(group, self.crew.algorithm.update(group, batch))

    def _noise(self, group: Group, rows: int) -> Tensor | None:
        if not self._draws:
            return None
        drawn = [
            self._streams[place].standard_normal((rows, self._draws), dtype=np.float32)
            for place in group.places
        ]
        return torch.from_numpy(np.stack(drawn))

    def _note(self, group: Group, figures: Mapping[str, Tensor]) -> None:
        for row, place in enumerate(group.places):
            sums = self._sums[place]
            self._updates[place] += 1
            for name, value in figures.items():
                sums[name] = value[row] if name not in sums else sums[name] + value[row]

    def _figures(self) -> list[dict[str, float]]:
        return [
            {"updates": float(count), **{name: float(value) / count for name, value in sums.items()}}
            if count
            else {"updates": 0.0}
            for sums, count in zip(self._sums, self._updates, strict=True)
        ]


def as_batch(rows: Columns, weight: Tensor, gamma: Tensor, noise: Tensor | None = None) -> Batch:
    """Columns of a replay as the maths wants them."""
    parts: dict[str, dict[str, Tensor]] = {"seen": {}, "after": {}}
    plain: dict[str, Any] = {}
    for name, value in rows.items():
        kind, slash, part = name.partition("/")
        if slash:
            parts[kind][part] = value
        else:
            plain[name] = value
    discount = plain.pop("discount", None)
    return Batch(
        seen=parts["seen"],
        after=parts["after"],
        actions=plain.pop("actions"),
        reward=plain.pop("reward"),
        over=plain.pop("over"),
        discount=gamma.unsqueeze(1) if discount is None else discount,
        weight=weight,
        kept=plain,
        noise=noise,
    )
