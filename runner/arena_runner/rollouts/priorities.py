"""How likely rows of a replay are drawn: by priority, each member's own (Schaul et al., arXiv 1511.05952).

A tree of sums, one for each member, of which every node has `FAN` children: drawing and changing walk three levels for a
hundred thousand rows, all members and rows of a batch at once. A node is always the sum of its children, computed anew
from them and never by adding differences, so nothing drifts and the tree follows from its leaves: only they are saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FAN = 32
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Priorities:
    """The chances of `capacity` rows for each of some members; rows that were never written have none."""

    def __init__(self, members: int, capacity: int, alpha: float) -> None:
        self.members, self.capacity, self.alpha = members, capacity, alpha
        sizes = [-(-capacity // FAN) * FAN]
        while sizes[-1] > FAN:
            sizes.append(-(-(sizes[-1] // FAN) // FAN) * FAN)
        self._levels: list[Floats] = [np.zeros((members, size)) for size in sizes]
        """leaves first; the root is the sum of the last"""
        self._most: Floats = np.ones(members)
        """each member's greatest priority so far, which a new row gets"""

    @property
    def total(self) -> Floats:
        """The sum of each member's leaves (N,)."""
        found: Floats = self._levels[-1].sum(1)
        return found

    def begin(self, rows: Numbers, members: Sequence[int] | None = None) -> None:
        """Rows were written anew: they are as likely as the likeliest."""
        places = range(self.members) if members is None else members
        for place in places:
            self.put(place, rows, np.full(len(rows), self._most[place]))

    def put(self, member: int, rows: Numbers, priority: Floats) -> None:
        """What rows count for a member from now on; of rows named twice the last counts."""
        self._most[member] = max(self._most[member], float(priority.max(initial=0.0)))
        # Leaves are rounded to what is saved of them, so that a resumed tree is the same.
        self._levels[0][member, rows] = np.float32(priority**self.alpha)
        self._lift(member, rows)

    def draw(self, member: int, uniform: Floats) -> tuple[Numbers, Floats]:
        """Rows at the points (B,) in [0, 1) of a member's sum, and their chances."""
        total = self.total[member]
        point, node = uniform * total, np.zeros(len(uniform), dtype=np.int64)
        for level in reversed(self._levels):
            whole = level[member] if level.shape[1] == FAN else None
            parts = (
                np.broadcast_to(whole, (len(node), FAN))
                if whole is not None
                else level[member].reshape(-1, FAN)[node]
            )
            reached = parts.cumsum(1)
            child = np.minimum((reached <= point[:, None]).sum(1), FAN - 1)
            child = np.where(parts[np.arange(len(node)), child] > 0, child, _last_with_any(parts))
            before = np.where(child > 0, reached[np.arange(len(node)), child - 1], 0.0)
            point, node = point - before, node * FAN + child
        return node, self._levels[0][member, node] / total

    def copy(self, parent: int, place: int) -> None:
        """A place has a parent's networks now, which find rows as hard as the parent's did."""
        for level in self._levels:
            level[place] = level[parent]
        self._most[place] = self._most[parent]

    def state(self) -> dict[str, Tensor]:
        """Leaves and greatest priorities."""
        leaves = self._levels[0][:, : self.capacity].astype(np.float32)
        return {"leaves": torch.from_numpy(leaves), "most": torch.from_numpy(self._most.copy())}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state()`."""
        self._levels[0][:, : self.capacity] = state["leaves"].numpy()
        self._most = state["most"].numpy().copy()
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            sums = below.reshape(self.members, -1, FAN).sum(2)
            above[:, : sums.shape[1]] = sums

    def _lift(self, member: int, rows: Numbers) -> None:
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            rows = np.unique(rows // FAN)
            above[member, rows] = below[member].reshape(-1, FAN)[rows].sum(1)


def _last_with_any(parts: Floats) -> Numbers:
    """The last child that has a share, for a point that rounding carried beyond the sum."""
    found: Numbers = FAN - 1 - (parts[:, ::-1] > 0).argmax(1)
    return found
