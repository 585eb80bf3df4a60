"""What was done in the running episode of every environment: enough to bring an ordinary environment back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arena_runner.policies.spaces import Choice, Continuous


class Diary:
    """Episode numbers, and the actions of the episodes that run."""

    @classmethod
    def of(cls, does: Choice | Continuous, rows: int) -> Diary:
        """For environments of one agent."""
        whole = isinstance(does, Choice)
        return cls(rows, len(does.sizes) if isinstance(does, Choice) else does.width, whole=whole)

    def __init__(self, rows: int, width: int, *, whole: bool) -> None:
        """For so many environments and numbers an action; `whole` numbers or floats."""
        self._width, self._dtype = width, np.int64 if whole else np.float32
        self.episodes = np.zeros(rows, dtype=np.int64)
        self.played: list[list[NDArray[Any]]] = [[] for _ in range(rows)]

    def clear(self) -> None:
        """Every environment begins its first episode."""
        self.episodes[:] = 0
        self.played = [[] for _ in self.played]

    def note(self, actions: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """What all did, and whose episode that ended."""
        for row, played in enumerate(self.played):
            played.append(actions[row].copy())
        for row in np.flatnonzero(ended).tolist():
            self.episodes[row] += 1
            self.played[row] = []

    def state(self) -> dict[str, Tensor]:
        """Which episode every environment is in, and what was done in it."""
        longest = max(1, *(len(actions) for actions in self.played))
        played = np.zeros((len(self.played), longest, self._width), self._dtype)
        for row, actions in enumerate(self.played):
            if actions:
                played[row, : len(actions)] = actions
        counts = np.array([len(actions) for actions in self.played], dtype=np.int64)
        return {
            "episodes": torch.from_numpy(self.episodes.copy()),
            "played": torch.from_numpy(played),
            "counts": torch.from_numpy(counts),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Read `state()`."""
        self.episodes = state["episodes"].numpy().copy()
        played, counts = state["played"].numpy(), state["counts"].numpy()
        self.played = [[action.copy() for action in played[row, : counts[row]]] for row in range(len(counts))]
