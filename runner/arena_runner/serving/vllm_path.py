"""The path half on a vLLM: its answers are compared with the base model's own weights.

Those are read into this process for as long as one proof lasts, on the CPU, and given back; requests of revisions
that serve go on meanwhile. Probes are sent as real adapters are, under names that are never used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from arena_runner.engines.base import Completion
from arena_runner.engines.identity import Asked
from arena_runner.engines.plain import Adapter
from arena_runner.engines.vllm_process import EngineError
from arena_runner.models import BaseModel, load_base
from arena_runner.serving.path import AT_ONCE


class Sender(Protocol):
    """The part of the vLLM generator that sends adapters and asks."""

    def send(self, word: str, adapter: Adapter) -> str:
        """Load an adapter; the name vLLM knows it by."""
        ...

    def take_back(self, sent: str) -> None:
        """Unload it."""
        ...

    def sent(self, name: str | None) -> str:
        """What vLLM knows a served name by; None: the bare base model."""
        ...

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask vLLM."""
        ...


@contextmanager
def weights_of(folder: Path, dtype: torch.dtype) -> Iterator[BaseModel]:
    """The base model as the trainer has it."""
    yield load_base(str(folder), device="cpu", dtype=dtype)


@dataclass(slots=True)
class ServedByVllm:
    """vLLM as the proof sees it."""

    sender: Sender
    like: Adapter
    at_once: int
    ends: frozenset[int]
    probes: dict[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> Sequence[tuple[int, float]]:
        """All like the adapter that is proved."""
        return [(self.like.config.rank, self.like.config.alpha)] * min(self.at_once, AT_ONCE)

    def load(self, name: str, place: int, adapter: Adapter) -> None:
        """A file with one layer's tensors: the other layers of its slot must then be zero."""
        del place
        self.probes[name] = self.sender.send("probe", adapter)

    def unload(self, name: str) -> None:
        """Give its slot back."""
        self.sender.take_back(self.probes.pop(name))

    def sample(self, asked: Sequence[Asked], new_tokens: int) -> list[Completion]:
        """Side by side, so that they share batches."""

        def one(item: Asked) -> Completion:
            name, ids = item
            return self._complete(self.probes.get(name or "") or self.sender.sent(name), ids, new_tokens)

        with ThreadPoolExecutor(len(asked), "probe") as threads:
            return list(threads.map(one, asked))

    def _complete(self, sent: str, ids: tuple[int, ...], new_tokens: int) -> Completion:
        body = {
            "model": sent,
            "prompt": list(ids),
            "max_tokens": new_tokens,
            "temperature": 0,
            "stop_token_ids": sorted(self.ends),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        choice = self.sender.post("/v1/completions", body)["choices"][0]
        tokens = tuple(int(token) for token in choice["token_ids"])
        logprobs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
        if len(logprobs) != len(tokens):
            raise EngineError(f"vLLM sent {len(tokens)} tokens and {len(logprobs)} logprobs")
        return Completion(tokens, logprobs, "eos" if tokens[-1] in self.ends else "length")
