"""Pairs of answers, one preferred: one iteration of DPO.

The reference never changes during a run, so its two numbers for a pair are computed once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arena_gitops.spec.algorithms.dpo import DpoKnobs
from arena_runner.algorithms import dpo
from arena_runner.learner import Learner
from arena_runner.population.lineage import mean
from arena_runner.population.member import Member
from arena_runner.rollouts.known import next_rows, probe
from arena_runner.rollouts.prompts import Prompt
from arena_runner.rollouts.task import Iterated, Judged
from arena_runner.seeds import key


@dataclass(frozen=True, slots=True)
class Preferred:
    """The task of DPO."""

    learner: Learner
    prompts: Sequence[Prompt]
    knobs: DpoKnobs
    dropout: float
    seed: int
    _reference: dict[tuple[tuple[int, ...], ...], tuple[float, float]] = field(default_factory=dict)

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """Every member learns its own next `batch_size` pairs, all in one launch."""
        batches = next_rows(members, self.prompts, self.seed)
        updates = dpo.update(
            self.learner,
            [self._pair(place, prompt) for place, batch in batches.items() for prompt in batch],
            {member.index: self._settings(member) for member in members},
            key=key(self.seed, "dropout", max(member.iteration for member in members)),
        )
        return {
            place: Iterated(
                prompts=len(batch),
                steps=len(batch),
                tokens=sum(len(prompt.target) + len(prompt.rejected) for prompt in batch),
                signal=updates[place].signal,
                reward=None,
                metrics={**updates[place].metrics, "length_bias": _length_bias(batch)},
            )
            for place, batch in batches.items()
        }

    def judge(self, places: Sequence[int], prompts: Sequence[Prompt]) -> dict[int, Judged]:
        """The share of pairs whose margin is positive, ties one half; beta and nll_alpha do not matter."""
        return {place: self._judged(place, prompts) for place in places}

    def _judged(self, place: int, prompts: Sequence[Prompt]) -> Judged:
        margins = [dpo.margin(self.learner, self._pair(place, prompt)) for prompt in prompts]
        scores = tuple(1.0 if m > 0 else 0.5 if m == 0 else 0.0 for m in margins)
        return Judged(scores, values={"margin": mean(margins)}, probe=probe(self.learner, place, prompts[0]))

    def _pair(self, place: int, prompt: Prompt) -> dpo.Pair:
        pair = dpo.Pair(place, prompt.ids, prompt.target, prompt.rejected)
        known = (prompt.ids, prompt.target, prompt.rejected)
        if known not in self._reference:
            self._reference[known] = dpo.log_probabilities(self.learner, pair, reference=True)
        return dpo.Pair(place, *known, reference=self._reference[known])

    def _settings(self, member: Member) -> dpo.DpoSettings:
        own = member.hyperparameters
        return dpo.DpoSettings(
            lr=own["lr"],
            beta=own["beta"],
            label_smoothing=own["label_smoothing"],
            nll_alpha=own["nll_alpha"],
            max_grad_norm=own["max_grad_norm"],
            update_epochs=int(own["update_epochs"]),
            dropout=self.dropout,
        )


def _length_bias(batch: Sequence[Prompt]) -> float:
    """Mean tokens by which the chosen answer is longer: a model may learn length instead of quality."""
    return mean([len(prompt.target) - len(prompt.rejected) for prompt in batch])
