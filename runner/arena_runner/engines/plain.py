"""An adapter as its format means it, one row at a time: what every engine's answers are compared with.

`base(x) + alpha/rank * B A x` beside each named linear layer, and nothing of what makes engines fast: no grouped
products, no packs, no caches, no rounded copies that are kept. It shares no code with the engines, so an adapter
that reaches nobody's layers, or reaches them twice as strong, is found out even where trainer and engine agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from arena_runner import peft_format
from arena_runner.lora import AdaptedLinear
from arena_runner.models import BaseModel
from arena_runner.peft_format import AdapterConfig


@dataclass(frozen=True, slots=True)
class Adapter:
    """What should be served: PEFT-named fp32 tensors, and what must be known beside them."""

    tensors: Mapping[str, Tensor]
    config: AdapterConfig

    @property
    def scale(self) -> float:
        """What B A x is multiplied by."""
        return self.config.alpha / self.config.rank

    @property
    def modules(self) -> tuple[str, ...]:
        """The linear layers it has tensors for, in order of name."""
        return tuple(sorted({name.partition(".lora_")[0].removeprefix(_PREFIX) for name in self.tensors}))

    def of(self, module: str) -> tuple[Tensor, Tensor]:
        """A (r, in) and B (out, r) of one module."""
        name_a, name_b = peft_format.tensor_names(module)
        return self.tensors[name_a], self.tensors[name_b]


_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens after a prompt, and the adapter whose opinion of them is wanted; None is the base model alone."""

    adapter: Adapter | None
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@torch.no_grad()
def logprobs(base: BaseModel, texts: Sequence[Text]) -> list[Tensor]:
    """Log p of every text's tokens at temperature 1, in fp32 on the CPU; all texts in one forward.

    Padding is on the right, where no causal model looks.
    """
    fed = [(*text.prompt_ids, *text.token_ids[:-1]) for text in texts]
    longest = max(map(len, fed))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in fed], device=base.device)
    with _beside(base, [text.adapter for text in texts]):
        hidden = base.body(input_ids=ids, use_cache=False).last_hidden_state
    told = []
    for row, text in enumerate(texts):
        first = len(text.prompt_ids) - 1
        logits = base.head(hidden[row, first : first + len(text.token_ids)]).float()
        chosen = torch.tensor(text.token_ids, device=base.device)[:, None]
        told.append(logits.log_softmax(-1).gather(1, chosen)[:, 0].cpu())
    return told


@contextmanager
def _beside(base: BaseModel, adapters: Sequence[Adapter | None]) -> Iterator[None]:
    """Give every row of the forwards inside its own adapter."""
    parts: dict[str, list[tuple[int, Tensor, Tensor, float]]] = {}
    for row, adapter in enumerate(adapters):
        for module in adapter.modules if adapter else ():
            assert adapter is not None
            a, b = (tensor.to(base.device, base.dtype) for tensor in adapter.of(module))
            parts.setdefault(module, []).append((row, a, b, adapter.scale))
    with ExitStack() as stack:
        for module, own in parts.items():
            handle = linear(base, module).register_forward_hook(_adds(own, len(adapters)))
            stack.callback(handle.remove)
        yield


def _adds(
    own: Sequence[tuple[int, Tensor, Tensor, float]], rows: int
) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(_module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        x = inputs[0].reshape(rows, -1, inputs[0].shape[-1])  # some layers are fed without the axis of rows
        y = output.reshape(rows, -1, output.shape[-1])
        for row, a, b, scale in own:
            y[row] += nn.functional.linear(nn.functional.linear(x[row], a) * scale, b)
        return y.view(output.shape)

    return hook


def linear(base: BaseModel, module: str) -> nn.Module:
    """The frozen linear layer of that name, whether or not a population has been put beside it."""
    found = base.model.get_submodule(module)
    return found.base if isinstance(found, AdaptedLinear) else found
