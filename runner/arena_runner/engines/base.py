"""What every text engine takes and returns.

A `Request` is one completion to sample; requests of the same member with the same prompt share one prefill.
Recorded logprobs are those of the softmax over the whole vocabulary at the sampling temperature, so that the
trainer's can be compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One completion wanted."""

    member: int | None
    """the adapter to use; None is the base model with every adapter off"""
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    key: int = 0
    """`seeds.row_key(seed, member, iteration, prompt, completion)`: the row's own stream of randomness"""
    temperature: float = 1.0
    greedy: bool = False
    """take the most likely token (evaluation); logprobs are then at temperature 1"""


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion as sampled; the end-of-sequence token is included when it was sampled."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished_by: Literal["eos", "length"]


class Engine(Protocol):
    """Samples completions for a population."""

    def generate(
        self, requests: Sequence[Request], on_done: Callable[[int, Completion], None] | None = None
    ) -> list[Completion]:
        """Sample all requests, in their order; `on_done(index, completion)` is called as each one finishes."""
        ...
