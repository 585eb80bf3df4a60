"""What members have lived through: one ring that all learn from, or one for each.

Columns are tensors (rings, capacity, …), written for all in the same launch. Rows never move, so a resume state needs only what was written since the last
one: a *page* per iteration, which later states keep by link and forget once its rows are overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Columns = dict[str, Tensor]


class Replay:
    """Rings of transitions."""

    def __init__(self, rings: int, capacity: int) -> None:
        self.rings, self.capacity = rings, capacity
        self.written = 0
        """rows of each ring since the beginning"""
        self.columns: Columns = {}

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Append (N, E, …) of every column: to every member's ring, or all of it to the one they share."""
        if self.rings == 1:
            rows = {name: value.flatten(0, 1).unsqueeze(0) for name, value in rows.items()}
        self.append(rows)

    def append(self, rows: Mapping[str, Tensor]) -> None:
        """Append (rings, rows, …) of every column."""
        count = next(iter(rows.values())).shape[1]
        if not self.columns:
            self.columns = {
                name: torch.zeros(self.rings, self.capacity, *value.shape[2:], dtype=value.dtype)
                for name, value in rows.items()
            }
        at = self.written % self.capacity
        head = min(count, self.capacity - at)
        for name, value in rows.items():
            column = self.columns[name]
            column[:, at : at + head] = value[:, :head]
            if head < count:
                column[:, : count - head] = value[:, head:]
        self.written += count

    def take(self, places: Tensor, rows: Tensor, parts: tuple[str, ...] = ("",)) -> Columns:
        """Rows (n, B) for the named places, of the columns whose names begin like one of `parts`."""
        index = rows.flatten() if self.rings == 1 else (places.unsqueeze(1) * self.capacity + rows).flatten()
        shape = rows.shape
        return {
            name: column.flatten(0, 1).index_select(0, index).unflatten(0, shape)
            for name, column in self.columns.items()
            if name.startswith(parts)
        }

    def ahead(self, places: Tensor, rows: Tensor, *, steps: int, stride: int, gamma: Tensor) -> Columns:
        """What so many steps from rows (n, B) led to: the sum of their rewards and what was seen then.

        The next step of an environment lies `stride` rows on. Where an episode ended or the ring has no more, fewer
        steps are summed, and `discount` says how many powers of `gamma` (n, 1) the value after them counts.
        """
        age = (self.written - 1 - rows) % self.capacity  # rows written after this one
        going = torch.ones(rows.shape, dtype=torch.bool)
        reward, discount, last = torch.zeros(rows.shape), torch.ones(rows.shape), rows
        for step in range(steps):
            last = torch.where(going, (rows + step * stride) % self.capacity, last)
            told = self.take(places, last, ("reward", "ended"))
            reward = torch.where(going, reward + discount * told["reward"], reward)
            discount = torch.where(going, discount * gamma, discount)
            going = going & (told["ended"] < 0.5) & (age >= (step + 1) * stride)
        led = self.take(places, last, ("after/", "over"))
        return {**led, "reward": reward, "discount": discount}

    def since(self, written: int) -> Columns:
        """The page of everything written after a point, oldest first."""
        count = min(self.written - written, self.capacity)
        rows = torch.arange(self.written - count, self.written) % self.capacity
        return {name: column[:, rows].contiguous() for name, column in self.columns.items()}
