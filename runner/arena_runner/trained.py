"""What the loop asks of whatever is trained: adapters on a base model (`learner`), or policies (`policies.crew`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

Weights = Mapping[str, Tensor]


class Trained(Protocol):
    """The weights of all places with their optimizer."""

    def __len__(self) -> int:
        """Number of places."""
        ...

    def copy(self, parent: int, place: int) -> None:
        """Must overwrite a place's weights, moments and step count with another's."""
        ...

    def mutate(self, place: int, kind: str, generation: int) -> str:
        """Must change a place's weights or architecture as the mutation says, and say how in a few words."""
        ...

    def export(self, place: int) -> Weights:
        """Must be enough for `load`, whatever the place becomes."""
        ...

    def load(self, place: int, weights: Weights) -> None:
        """Must act as the exported member did."""
        ...

    def save(self, place: int, folder: Path) -> dict[str, Any]:
        """Must write the member for use; gives what is to be noted beside it."""
        ...

    def state(self) -> tuple[Weights, Weights]:
        """Weights and moments of all."""
        ...

    def restore(self, weights: Weights, moments: Weights) -> None:
        """Must continue bit for bit."""
        ...


class Lived(Protocol):
    """What a task has lived through that a resume needs; text tasks have nothing."""

    def state(self) -> Weights:
        """Everything but pages."""
        ...

    def restore(self, state: Weights) -> None:
        """Must go on from `state()`."""
        ...

    def pages(self, known: int) -> tuple[int, Weights]:
        """Must give what was added since a mark, and the new mark."""
        ...

    def refill(self, pages: Sequence[Weights], written: int) -> None:
        """Must lay pages back, oldest first; `written` is the mark of the last."""
        ...

    @property
    def kept(self) -> int:
        """Rows before `mark - kept` are needed no more."""
        ...

    def overwritten(self, place: int, parent: int) -> None:
        """A place has its parent's weights now; told in the order in which they were copied."""
        ...
