"""What the HTTP face needs of whatever generates: our own decoder (`scheduler`), or a vLLM beside it (`vllm`)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

import torch

from arena_runner.serving.protocol import Adapter, Params, Piece, Proved
from arena_runner.serving.shelf import Loaded


class Text(Protocol):
    """The base model as far as prompts and health go."""

    @property
    def ref(self) -> str:
        """Under which name it was found."""
        ...

    @property
    def revision(self) -> str | None:
        """Of a hub model."""
        ...

    @property
    def digest(self) -> str:
        """Of its weights."""
        ...

    @property
    def tokenizer(self) -> Any:
        """Text to ids and back."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """In what precision."""
        ...


class Asked(Protocol):
    """One completion on its way."""

    cancelled: bool


@runtime_checkable
class Generator(Protocol):
    """Callable from any thread; adapters keep their names' meanings for ever."""

    @property
    def base(self) -> Text:
        """What everything is generated on."""
        ...

    @property
    def load(self) -> tuple[int, int]:
        """Completions being generated, and waiting."""
        ...

    def known(self, name: str) -> Adapter | None:
        """The adapter, if new requests may use it."""
        ...

    def adapters(self) -> tuple[Adapter, ...]:
        """All that new requests may use."""
        ...

    def submit(
        self,
        adapter: str,
        prompt_ids: tuple[int, ...],
        params: Params,
        emit: Callable[[Piece], None],
        logprobs: int | None = None,
    ) -> Asked:
        """Queue one completion; must refuse unknown adapters, must never answer with the base instead."""
        ...

    def load_adapter(self, new: Loaded) -> Future[None]:
        """Load one more."""
        ...

    def unload_adapter(self, name: str) -> None:
        """Take no new requests for it; it goes when its last completion has ended."""
        ...

    def logprobs(
        self, adapter: str, prompt_ids: tuple[int, ...], token_ids: tuple[int, ...]
    ) -> Future[list[float]]:
        """Measure given tokens at temperature 1."""
        ...

    def prove(self, name: str, digest: str | None = None, *, again: bool = False) -> Proved:
        """Show that a name answers by the weights it should, or raise PolicyMismatchError; blocks the caller.

        `again`: where this process has shown it before, the weights are read back and nothing more.
        """
        ...
