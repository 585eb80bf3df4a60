"""AdamW for a whole population in one launch.

A member is a few rows of one (R, F) matrix, so one set of tensor operations updates everybody: learning rate,
step count, clip and skip are columns. The gradient norm that clips a member is its own. A skipped member
keeps parameters, moments and step count bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner.adapters import Population


class DivergedError(ArenaError):
    """The gradients of every member that is trained are no longer numbers."""


class StackedAdamW:
    """Equals N runs of `torch.optim.AdamW` with `clip_grad_norm_`; moments are fp32 like the masters."""

    def __init__(
        self,
        population: Population,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._population = population
        self._betas = betas
        self._eps = eps
        self._decay = weight_decay
        self.mean = torch.zeros_like(population.masters)  # (R, F)
        self.square = torch.zeros_like(population.masters)  # (R, F)
        self.steps = [0] * population.members

    @torch.no_grad()
    def step(self, lr: Mapping[int, float], clip: Mapping[int, float]) -> dict[int, float]:
        """Step the members named in `lr`, clear all gradients and sync the adapters.

        Args:
            lr: learning rate of every member that steps; the others are skipped.
            clip: largest gradient norm per member; 0 or absent means no clipping.

        Returns:
            Each member's gradient norm before clipping; one that is no finite number was skipped.

        Raises:
            DivergedError: Not one of them has gradients that are numbers.
        """
        population = self._population
        norms = {m: float(population.grads[population.span(m)].norm()) for m in lr}
        sound = [m for m, norm in norms.items() if norm < float("inf")]
        if norms and not sound:
            told = ", ".join(f"m{m}" for m in sorted(norms))
            raise DivergedError(f"{told}: the gradients are no numbers any more; lower the learning rate")
        if sound:
            self._launch(sorted(sound), lr, {m: _clip(norms[m], clip.get(m, 0.0)) for m in sound})
            population.sync()
        population.zero_grad()
        return norms

    def _launch(self, members: list[int], lr: Mapping[int, float], scale: Mapping[int, float]) -> None:
        """One update of the stepping members' rows."""
        p = self._population
        beta1, beta2 = self._betas
        for member in members:
            self.steps[member] += 1
        rows = torch.cat([torch.arange(p.span(m).start, p.span(m).stop) for m in members]).to(
            p.masters.device
        )
        owner = p.owner[rows].tolist()

        def column(values: Mapping[int, float]) -> Tensor:
            return torch.tensor([values[m] for m in owner], dtype=p.masters.dtype, device=rows.device)[
                :, None
            ]

        grads = p.grads[rows] * column(scale)
        mean = self.mean[rows].lerp_(grads, 1 - beta1)
        square = self.square[rows].mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
        step_size = column({m: lr[m] / (1 - beta1 ** self.steps[m]) for m in members})
        root = column({m: (1 - beta2 ** self.steps[m]) ** 0.5 for m in members})
        masters = p.masters[rows].mul_(column({m: 1 - lr[m] * self._decay for m in members}))
        masters -= step_size * (mean / (square.sqrt() / root).add_(self._eps))
        self.mean[rows], self.square[rows], p.masters[rows] = mean, square, masters

    def copy(self, source: int, target: int) -> None:
        """Overwrite a place's moments and step count with another's."""
        here, there = self._population.span(target), self._population.span(source)
        self.mean[here] = self.mean[there]
        self.square[here] = self.square[there]
        self.steps[target] = self.steps[source]

    def state(self) -> dict[str, Tensor]:
        """Everything a resume needs."""
        return {
            "mean": self.mean.cpu().clone(),
            "square": self.square.cpu().clone(),
            "steps": torch.tensor(self.steps),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`, bit for bit."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = [int(s) for s in state["steps"]]


def _clip(norm: float, limit: float) -> float:
    """The factor `clip_grad_norm_` multiplies gradients with."""
    return min(1.0, limit / (norm + 1e-6)) if limit else 1.0
