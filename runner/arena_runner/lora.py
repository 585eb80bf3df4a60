"""One adapted layer: what happens to the rows of a batch inside it.

Which member a row belongs to travels with the call: `arena_rows` is a keyword argument of the model's forward
that every decoder layer hands down, and a `Carrier` in the layer's place gives it to the linears inside for
that call alone. Never a global: a layer recomputed in the backward pass sees the rows it saw the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from arena_runner import seeds


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of every A and B a batch uses, and how much: made by `Population.rows`."""

    span: slice
    gate: Tensor | float  # (rows, span) or, when one member owns all rows, its alpha/rank
    dropout: tuple[float, Tensor] | None = None
    """rate and one int64 key per row, SFT only"""


@dataclass(frozen=True, slots=True)
class Stack:
    """All members' A (or B) of one layer: columns of the masters and of the gradients, and a rounded copy."""

    master: Tensor
    grad: Tensor
    rounded: Tensor

    def rows(self, span: slice) -> Tensor:
        """Read some rows, differentiably where gradients are wanted."""
        if not torch.is_grad_enabled():
            return self.rounded[span]
        picked: Tensor = _Rounded.apply(self.master, self.rounded[span], self.grad[span])  # type: ignore[no-untyped-call] # torch leaves it untyped
        return picked


class AdaptedLinear(nn.Module):
    """A frozen linear layer with every member's adapter beside it."""

    def __init__(self, base: nn.Linear, salt: int) -> None:
        super().__init__()
        self.base = base
        self.salt = salt
        self.rows: Rows | None = None
        """set by the decoder layer around its own forward, see `Carrier`"""
        self.a: Stack  # (R, in)
        self.b: Stack  # (R, out)

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        y: Tensor = self.base(x)
        rows = self.rows
        if rows is None:
            return y
        a, b = self.a.rows(rows.span), self.b.rows(rows.span)
        if rows.dropout is not None:
            rate, keys = rows.dropout
            x = x * _keep(rate, keys, self.salt, x.shape[-1]).view(x.shape).to(x.dtype)
        low = nn.functional.linear(x, a)  # (…, span)
        gate = rows.gate if isinstance(rows.gate, float) else rows.gate.view(low.shape)
        return y + (low * gate) @ b


class _Rounded(torch.autograd.Function):
    """Read the rounded copy; add its gradient to the member's rows in full precision."""

    @staticmethod
    def forward(ctx: Any, master: Tensor, rounded: Tensor, grad: Tensor) -> Tensor:  # noqa: ARG004 - the master is what makes the result differentiable
        ctx.grad = grad
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.grad += grad
        return None, None, None


class Carrier:
    """Stands in for a decoder layer's forward: hands `arena_rows` to the adapted linears inside, for that call.

    Checkpointing wraps this whole call, so the recomputed forward is given the very same rows.
    """

    def __init__(self, layer: nn.Module, modules: Sequence[AdaptedLinear]) -> None:
        self.reached = False
        """whether rows have arrived at all"""
        self.checkpoint = False
        self._layer = layer
        self._modules = modules
        self._plain: Callable[..., Any] = layer.forward
        layer.forward = self._forward

    def remove(self) -> None:
        """Give the layer its own forward back."""
        del self._layer.forward

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.checkpoint and torch.is_grad_enabled():
            return checkpoint(self._run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        rows = kwargs.get("arena_rows")
        self.reached |= rows is not None
        for module in self._modules:
            module.rows = rows
        try:
            return self._plain(*args, **kwargs)
        finally:
            for module in self._modules:
                module.rows = None


def _keep(rate: float, keys: Tensor, salt: int, width: int) -> Tensor:
    """Inverted dropout mask (rows, width) as a function of row key, layer and column alone."""
    columns = torch.arange(width, device=keys.device)
    draw = seeds.uniform(keys.reshape(-1, 1) ^ seeds.key(salt, "dropout"), columns)
    return (draw >= rate) / (1.0 - rate)
