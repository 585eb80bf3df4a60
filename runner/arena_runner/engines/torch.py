"""Batched sampling over a population with torch alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arena_runner.adapters import Population
from arena_runner.engines.base import Completion, Request
from arena_runner.models import BaseModel


class TorchEngine:
    """Samples with the very tensors the trainer updates; after an update there is nothing to send."""

    def __init__(
        self, base: BaseModel, population: Population | None = None, *, rows_in_flight: int = 64
    ) -> None:
        raise NotImplementedError

    def generate(
        self, requests: Sequence[Request], on_done: Callable[[int, Completion], None] | None = None
    ) -> list[Completion]:
        """Sample all requests, in their order; `on_done(index, completion)` is called as each one finishes."""
        raise NotImplementedError
