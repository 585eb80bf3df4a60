"""N networks of one design as one matrix (N, P), with Adam in one pass over it.

A layer's stacked weight is a view of the matrix, its gradient a view of another, so the optimizer, a soft update and
a copy of a member are single operations on rows. Learning rate, step count and clip are columns: N together equal N
runs of `torch.optim.Adam` with `clip_grad_norm_` (a test). A member that is not in a subset keeps its bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from arena_runner.policies import layers
from arena_runner.policies.design import Design
from arena_runner.policies.layers import Memory, Slot
from arena_runner.seeds import key

BETAS = (0.9, 0.999)
EPS = 1e-8


class Stack:
    """Networks of one design."""

    def __init__(self, design: Design, flat: Tensor, *, trained: bool = True) -> None:
        self.design = design
        self.slots = layers.layout(design)
        self.flat = flat  # (N, P)
        self.grads = torch.zeros_like(flat) if trained else None
        self.mean = torch.zeros_like(flat) if trained else None
        self.square = torch.zeros_like(flat) if trained else None
        self.steps = torch.zeros(len(flat), 1, dtype=torch.float64)
        self.params = views(self.slots, flat)
        if self.grads is not None:
            self._grad_views = list(views(self.slots, self.grads).values())
            for value in self.params.values():
                value.requires_grad_(True)

    @classmethod
    def fresh(cls, design: Design, seeds: Sequence[int]) -> Self:
        """Networks initialised from one seed each."""
        return cls(design, torch.stack([initial(layers.layout(design), seed) for seed in seeds]))

    def twin(self) -> Stack:
        """A copy that no optimizer touches: a target network."""
        return Stack(self.design, self.flat.clone(), trained=False)

    def __len__(self) -> int:
        return len(self.flat)

    def latent(self, seen: Mapping[str, Tensor]) -> Tensor:
        """What is seen → (N, B, latent_dim)."""
        return layers.encode(self.design, self.params, seen)

    def head(self, latent: Tensor, index: int = 0, noise: Tensor | None = None) -> Tensor:
        """Latent → one output (N, B, outputs), of a noisy head with this noise."""
        return layers.head(self.design, self.params, index, latent, noise)

    def __call__(self, seen: Mapping[str, Tensor], beside: Tensor | None = None) -> Tensor:
        """What is seen (and an action beside it) → the only output."""
        latent = self.latent(seen)
        return self.head(latent if beside is None else torch.cat([beside, latent], -1))

    def remember(self, seen: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """One step of networks with memory: latent and the memory after it."""
        return layers.recurrent(self.design, self.params, seen, memory)

    def minimise(self, loss: Tensor, lr: Tensor, clip: Tensor | None = None, eps: float = EPS) -> Tensor:
        """One step of Adam for every network; `loss` is the sum over members, `lr` and `clip` are (N,).

        Returns:
            Each member's gradient norm before clipping.
        """
        self.differentiate(loss)
        norms = self.norms()
        shrink = None if clip is None else (clip / (norms + 1e-6)).clamp(max=1.0)
        self.apply(lr, shrink=shrink, eps=eps)
        return norms

    def differentiate(self, loss: Tensor, *, retain: bool = False) -> None:
        """Lay the gradient of a loss where `apply` looks for it."""
        leaves = list(self.params.values())
        found = torch.autograd.grad(loss, leaves, retain_graph=retain, materialize_grads=True)
        torch._foreach_copy_(self._grad_views, found)  # the only name of the fused copy

    def norms(self) -> Tensor:
        """Each member's gradient norm (N,)."""
        assert self.grads is not None
        norms: Tensor = torch.linalg.vector_norm(self.grads, dim=1)
        return norms

    @torch.no_grad()
    def apply(self, lr: Tensor, *, shrink: Tensor | None = None, eps: float = EPS) -> None:
        """Adam on the gradients that lie there, each member's first multiplied by `shrink`."""
        grads, mean, square = self.grads, self.mean, self.square
        assert grads is not None
        assert mean is not None
        assert square is not None
        if shrink is not None:
            grads.mul_(shrink.unsqueeze(1))
        self.steps += 1
        rows = zip(self.flat, grads, mean, square, self.steps.float(), lr.tolist(), strict=True)
        for flat, grad, first, second, step, rate in rows:
            torch._fused_adam_(  # one pass over memory; what torch.optim.Adam(fused=True) calls
                [flat], [grad], [first], [second], [], [step],
                lr=rate, beta1=BETAS[0], beta2=BETAS[1], eps=eps,
                weight_decay=0.0, amsgrad=False, maximize=False,
            )  # fmt: skip

    @torch.no_grad()
    def follow(self, other: Stack, tau: Tensor | float) -> None:
        """Move towards another stack by a share: a soft update."""
        self.flat.lerp_(other.flat, tau.unsqueeze(1) if isinstance(tau, Tensor) else tau)

    @torch.no_grad()
    def subset(self, rows: Sequence[int]) -> Stack:
        """These members with their moments, as a stack of their own."""
        index = torch.tensor(rows)
        part = Stack(self.design, self.flat[index], trained=self.grads is not None)
        part.steps = self.steps[index]
        if self.mean is not None and self.square is not None:
            part.mean, part.square = self.mean[index], self.square[index]
        return part

    @torch.no_grad()
    def take_back(self, part: Stack, rows: Sequence[int]) -> None:
        """What a subset has become."""
        index = torch.tensor(rows)
        self.flat[index], self.steps[index] = part.flat, part.steps
        if self.mean is not None and self.square is not None:
            assert part.mean is not None
            assert part.square is not None
            self.mean[index], self.square[index] = part.mean, part.square


def views(slots: Sequence[Slot], flat: Tensor) -> dict[str, Tensor]:
    """Name → its stacked view (N, *shape) of the matrix."""
    found, at = {}, 0
    for slot in slots:
        size = math.prod(slot.shape)
        found[slot.name] = flat.detach()[:, at : at + size].unflatten(1, slot.shape)
        at += size
    return found


def initial(slots: Sequence[Slot], seed: int) -> Tensor:
    """One member's parameters (P,), a function of its seed."""
    return torch.cat([_draw(slot, key(seed, slot.name)).flatten() for slot in slots])


def _draw(slot: Slot, seed: int) -> Tensor:
    dice = torch.Generator().manual_seed(seed & ((1 << 63) - 1))
    match slot.init:
        case "zeros":
            return torch.zeros(slot.shape)
        case "ones":
            return torch.ones(slot.shape)
        case "value":
            return torch.full(slot.shape, slot.gain)
        case "uniform":
            return (torch.rand(slot.shape, generator=dice) * 2 - 1) * slot.gain
        case "orthogonal":
            return _orthogonal(slot.shape, dice) * slot.gain


def _orthogonal(shape: tuple[int, ...], dice: torch.Generator) -> Tensor:
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = torch.randn(max(rows, columns), min(rows, columns), generator=dice)
    q, r = torch.linalg.qr(drawn)
    q = q * r.diagonal().sign()
    found: Tensor = (q if rows >= columns else q.T).reshape(shape)
    return found
