"""A population of LoRA adapters on ONE frozen base model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from arena_runner.models import BaseModel


class Population:
    """N members; see the module. Members are places 0 … N-1."""

    @classmethod
    def attach(
        cls,
        base: BaseModel,
        *,
        targets: Sequence[str] | str = "all-linear",
        ranks: Sequence[int],
        alphas: Sequence[float],
        seed: int = 0,
        reference: Mapping[str, Tensor] | None = None,
    ) -> Population:
        """Put fresh adapters (B = 0) on a base model. `reference`: the frozen starting adapter, if not the base itself."""
        raise NotImplementedError

    def export(self, member: int) -> dict[str, Tensor]:
        """PEFT-named fp32 tensors of one member."""
        raise NotImplementedError

    def save(self, member: int, folder: Path) -> None:
        """Write `adapter_model.safetensors` and `adapter_config.json`, loadable by peft."""
        raise NotImplementedError

    def load(self, member: int, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite one member's weights with PEFT-named tensors of the same rank and targets."""
        raise NotImplementedError

    def copy(self, source: int, target: int) -> None:
        """Overwrite a place with another's weights (moments: `StackedAdamW.copy`)."""
        raise NotImplementedError

    def sync(self) -> None:
        """Round the fp32 masters to the compute dtype once; trainer and engine read that copy."""
        raise NotImplementedError

    def digest(self, member: int) -> str:
        """sha256 over a member's tensors, rank, alpha and targets."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Everything a resume needs."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`."""
        raise NotImplementedError

    def detach(self) -> Any:
        """Take the adapters off and give the base model back."""
        raise NotImplementedError
