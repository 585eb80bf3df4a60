"""Proof that an engine in another process serves the policy the trainer has: the field's most repeated silent bug.

A fixed probe of 256 tokens is scored by both. What they may differ by is measured where nothing can be wrong yet, on
the base model, once per engine and dtype; every adapter that is sent must then agree with the trainer within three
times that. A mismatch ends the run and says whose weights the engine seems to hold instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_runner import ops, seeds
from arena_runner.adapters import OFF, Population
from arena_runner.models import BaseModel
from arena_runner.packing import Group, pack

PROMPT, ANSWER, TEXTS = 8, 64, 4
EXACT = 1e-3
"""mean difference in fp32 below which nothing is suspected; seen: 3e-5"""

Score = Callable[[int | None, Sequence[int], Sequence[int]], Sequence[float]]
"""(member, prompt ids, token ids) → logprobs of the engine's policy, at temperature 1"""


class PolicyMismatchError(ArenaError):
    """The engine samples from another policy than the one that is trained."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the engine's opinion of the probe is from the trainer's."""

    distance: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether they are the same policy as far as the probe can see."""
        return self.distance <= self.tolerance


class PolicyProof:
    """One per engine; calibrated on first use."""

    def __init__(self, base: BaseModel, population: Population, score: Score) -> None:
        self._base, self._population, self._score = base, population, score
        vocabulary = base.head.weight.shape[0]
        draws = [seeds.key(0, "probe", i) % vocabulary for i in range(TEXTS * (PROMPT + ANSWER))]
        texts = [draws[i : i + PROMPT + ANSWER] for i in range(0, len(draws), PROMPT + ANSWER)]
        self._texts = [(text[:PROMPT], text[PROMPT:]) for text in texts]
        self._tolerance: float | None = None

    @property
    def tolerance(self) -> float:
        """Three times what they differ by on the base model; measured once."""
        if self._tolerance is None:
            apart = float((self._trainers(None) - self._engines(None)).abs().mean())
            floor = 10 * EXACT if self._base.dtype is torch.float32 else 1.0
            if apart > floor:
                raise PolicyMismatchError(
                    f"engine and trainer differ by {apart:.3g} nats per token on the bare base model; is it the same model, "
                    "tokenizer and dtype?"
                )
            self._tolerance = max(EXACT, 3 * apart)
        return self._tolerance

    def judge(self, member: int) -> Verdict:
        """Compare one member's policies."""
        distance = float((self._trainers(member) - self._engines(member)).abs().mean())
        return Verdict(distance, self.tolerance)

    def demand(self, member: int, name: str) -> None:
        """Raise PolicyMismatchError unless the engine serves the member's weights under `name`."""
        verdict = self.judge(member)
        if verdict.agrees:
            return
        raise PolicyMismatchError(
            f"the engine does not serve m{member}'s weights under {name}: {verdict.distance:.3g} nats per token from the "
            f"trainer's, {verdict.tolerance:.3g} allowed; nearest is {self._nearest(member)}. Nothing was sampled from it."
        )

    def _nearest(self, member: int) -> str:
        """Whose trainer policy the engine's answers are nearest to."""
        told = self._engines(member)
        known = {"the base model": None} | {f"m{m}": m for m in range(len(self._population.ranks))}
        return min(known, key=lambda name: float((self._trainers(known[name]) - told).abs().mean()))

    def _engines(self, member: int | None) -> Tensor:
        return torch.tensor(
            [x for prompt, answer in self._texts for x in self._score(member, prompt, answer)]
        )

    @torch.no_grad()
    def _trainers(self, member: int | None) -> Tensor:
        place = OFF if member is None else member
        groups = [Group(place, tuple(p), (tuple(a),), (row,)) for row, (p, a) in enumerate(self._texts)]
        parts = []
        for piece in pack(groups, 1024, self._base.device, shared=self._base.packs):
            ones = torch.ones(len(piece.rows), device=self._base.device)
            parts.append(ops.logprobs(self._base, self._population, piece, ones))
        return torch.cat(parts).float().cpu()
