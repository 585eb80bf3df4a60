"""Layer norm of stacked networks, with scale, shift and ReLU, in as few passes over memory as it takes.

Small networks spend more time here than in their products. Out of torch's own operations the chain is nine passes
forward and backward with an allocation each; its gradient is short enough to be written down (a test has torch's beside).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

EPS = 1e-5


def normed(x: Tensor, scale: Tensor, shift: Tensor, *, relu: bool) -> Tensor:
    """Rows (N, B, F) to mean 0 and deviation 1, then each member's own scale and shift (N, F)."""
    if not torch.is_grad_enabled():
        unit = functional.layer_norm(x, x.shape[-1:], eps=EPS)
        out = torch.addcmul(shift.unsqueeze(1), unit, scale.unsqueeze(1))
        return out.relu_() if relu else out
    found: Tensor = _Normed.apply(x, scale, shift, relu)  # type: ignore[no-untyped-call]  # torch's own
    return found


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, relu: bool) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        length = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
        steepness = length.square_().div_(x.shape[-1]).add_(EPS).rsqrt_()
        unit = centred * steepness
        out = torch.addcmul(shift.unsqueeze(1), unit, scale.unsqueeze(1))
        if relu:
            out.relu_()
        ctx.save_for_backward(centred, steepness, unit, scale, out if relu else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        centred, steepness, unit, scale, out = ctx.saved_tensors
        if out is not None:
            grad = torch.ops.aten.threshold_backward(grad, out, 0.0)
        bent = grad * scale.unsqueeze(1)
        entered, _, _ = torch.ops.aten.native_layer_norm_backward(
            bent,
            centred,
            centred.shape[-1:],
            torch.zeros_like(steepness),
            steepness,
            None,
            None,
            [True, False, False],
        )
        return entered, (grad * unit).sum(1), grad.sum(1), None
