"""AdamW for a whole population in one launch."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from arena_runner.adapters import Population


class StackedAdamW:
    """N optimizers as tensors; moments and step counts are each member's own."""

    def __init__(
        self,
        population: Population,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        raise NotImplementedError

    def step(self, lr: Mapping[int, float], clip: Mapping[int, float]) -> dict[int, float]:
        """Step the members named in `lr`, clear all gradients, sync the adapters; returns gradient norms before clipping."""
        raise NotImplementedError

    def copy(self, source: int, target: int) -> None:
        """Overwrite a place's moments and step count with another's."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Everything a resume needs."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        raise NotImplementedError
