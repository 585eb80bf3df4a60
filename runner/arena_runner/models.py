"""Base models: where they are found, in which precision they compute, and which tokens end a completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A frozen causal language model and its tokenizer."""

    model: Any
    tokenizer: Any
    ref: str
    revision: str | None
    digest: str
    """sha256 over the weights files: what exports name as their base"""
    device: torch.device
    dtype: torch.dtype
    eos_ids: frozenset[int]
    pad_id: int

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of a conversation up to where the assistant speaks, by the model's own chat template."""
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens without special tokens."""
        raise NotImplementedError


def load_base(
    ref: str,
    *,
    models_dir: Path | None = None,
    revision: str | None = None,
    device: str | None = None,
    dtype: torch.dtype | None = None,
) -> BaseModel:
    """Load a local folder, a name in the models folder, or a hub id; raises ModelError saying where it looked."""
    raise NotImplementedError
