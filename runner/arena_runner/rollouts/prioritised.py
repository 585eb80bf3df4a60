"""Learning from replay by priority, several steps ahead: `replayed` for an algorithm that says what a row is worth.

Rows are drawn one from each of `batch_size` equal parts of a member's sum of priorities, count less the likelier they
were (`beta`), and get a new priority from the update they were in. Returns of `n_step` rewards are summed when rows are
drawn, because members that share a ring may differ in gamma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from arena_gitops.spec.manifest.sections import ClassicTraining, PrioritisedReplay, ReplayBuffer
from arena_runner.policies.crew import Crew
from arena_runner.policies.group import Group
from arena_runner.policies.port import Acted, Batch, Seen
from arena_runner.rollouts.played import OpenWorld, Slice
from arena_runner.rollouts.priorities import Priorities
from arena_runner.rollouts.replay import Columns
from arena_runner.rollouts.replayed import Replayed, as_batch
from arena_runner.rollouts.worlds import Stepped

ALPHA = 0.5
"""how much a large error counts, unless the manifest says"""


class Prioritised(Replayed):
    """A task of an off-policy algorithm with priorities."""

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
        super().__init__(crew, open_world, cut, seed, training=training, buffer=buffer)
        written = buffer.per_buffer_args if isinstance(buffer, PrioritisedReplay) else None
        alpha = ALPHA if written is None else written.alpha
        self.priorities = Priorities(self.members, self.replay.capacity, alpha)
        self._steps = int(getattr(crew.knobs, "n_step", 1))
        self._combined = bool(getattr(crew.knobs, "combined_reward", False))
        self._stride = cut.each * (self.members if self.replay.rings == 1 else 1)

    def state(self) -> dict[str, Tensor]:
        """Priorities beside the rest."""
        return {
            **super().state(),
            **{f"priority/{name}": value for name, value in self.priorities.state().items()},
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state()`."""
        super().restore(state)
        at = "priority/"
        self.priorities.restore({n.removeprefix(at): v for n, v in state.items() if n.startswith(at)})

    def overwritten(self, place: int, parent: int) -> None:
        """Of a shared ring a copy finds the same rows hard as its parent."""
        super().overwritten(place, parent)
        if self.replay.rings == 1:
            self.priorities.copy(parent, place)

    def _keep(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> None:
        since = self.replay.written
        super()._keep(before, acted, stepped)
        self.priorities.begin(np.arange(since, self.replay.written) % self.replay.capacity)

    def _row(self, before: Seen, acted: Sequence[Acted], stepped: Stepped) -> Columns:
        ended = torch.from_numpy(stepped.ended).unflatten(0, (self.members, -1)).float()
        return {**super()._row(before, acted, stepped), "ended": ended}

    def _update(self, group: Group, times: int) -> None:
        """One update after another: each draws by what the last has said."""
        for _ in range(times):
            picked, weight, importance = self._drawn(group)
            batch = self._batch(group, picked, weight)
            figures = dict(
                self.crew.algorithm.update(
                    group, replace(batch, kept={**batch.kept, "importance": importance})
                )
            )
            priority = figures.pop("priority").double().numpy()
            for row, (place, size) in enumerate(zip(group.places, _sizes(group), strict=True)):
                self.priorities.put(place, picked[row, :size].numpy(), priority[row, :size])
            self._note(group, figures)

    def _drawn(self, group: Group) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, their weights in a member's mean, and what they count for being likely: (N, B) each."""
        sizes, beta = _sizes(group), group.of("beta").tolist()
        shape = (len(group), max(sizes))
        picked = torch.zeros(shape, dtype=torch.int64)
        weight, importance = torch.zeros(shape), torch.zeros(shape)
        for row, (place, size) in enumerate(zip(group.places, sizes, strict=True)):
            points = (np.arange(size) + self._streams[place].random(size)) / size
            found, chance = self.priorities.draw(place, points)
            rare = (len(self.replay) * chance) ** -beta[row]
            picked[row, :size] = torch.from_numpy(found)
            weight[row, :size] = 1 / size
            importance[row, :size] = torch.from_numpy(rare / rare.max())
        return picked, weight, importance

    def _batch(self, group: Group, picked: Tensor, weight: Tensor) -> Batch:
        places, gamma = torch.tensor(group.places), group.of("gamma")
        taken = self.replay.take(places, picked)
        taken.pop("ended")
        near = as_batch(taken, weight, gamma)
        ahead = self.replay.ahead(
            places, picked, steps=self._steps, stride=self._stride, gamma=gamma.unsqueeze(1)
        )
        made = as_batch({**taken, **ahead}, weight, gamma, self._noise(group, weight.shape[1]))
        return replace(made, shake=self._shake(group), near=near if self._combined else None)

    def _shake(self, group: Group) -> Tensor | None:
        shakes = getattr(self.crew.algorithm, "shakes", None)
        if shakes is None or not (count := shakes(group)):
            return None
        drawn = [self._streams[place].standard_normal((1, count), dtype=np.float32) for place in group.places]
        return torch.from_numpy(np.stack(drawn))


def _sizes(group: Group) -> list[int]:
    return [int(size) for size in group.own["batch_size"]]
