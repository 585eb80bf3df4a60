"""The prompt stream: one seeded permutation of the rows per epoch, the same for every member.

A member's k-th prompt is `row(k)` whatever its batch size, so two members are compared on the same data. There is
no state beyond the member's own cursor.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np


class Stream:
    """An endless sequence of row indices."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows = rows
        self._seed = seed
        self._epoch = lru_cache(maxsize=4)(self._permutation)

    def row(self, k: int) -> int:
        """Index of the k-th prompt."""
        epoch, place = divmod(k, self.rows)
        return int(self._epoch(epoch)[place])

    def take(self, cursor: int, count: int) -> list[int]:
        """Indices of the next `count` prompts of a member whose cursor is `cursor`."""
        return [self.row(k) for k in range(cursor, cursor + count)]

    def _permutation(self, epoch: int) -> np.ndarray:
        # Philox is a counter-based generator: (seed, epoch) is the whole state.
        return np.random.Generator(np.random.Philox(key=[self._seed, epoch])).permutation(self.rows)
