"""Targets learned as they stand: one iteration of SFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arena_gitops.spec.algorithms.sft import SftKnobs
from arena_runner.algorithms import sft
from arena_runner.learner import Learner
from arena_runner.population.member import Member
from arena_runner.rollouts.known import next_rows, probe
from arena_runner.rollouts.prompts import Prompt
from arena_runner.rollouts.task import Iterated, Judged
from arena_runner.seeds import key


@dataclass(frozen=True, slots=True)
class Imitated:
    """The task of SFT."""

    learner: Learner
    prompts: Sequence[Prompt]
    knobs: SftKnobs
    dropout: float
    seed: int

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """Every member learns its own next `batch_size` rows, all in one launch."""
        batches = next_rows(members, self.prompts, self.seed)
        updates = sft.update(
            self.learner,
            [example for place, batch in batches.items() for example in _examples(place, batch)],
            {member.index: self._settings(member) for member in members},
            key=key(self.seed, "dropout", max(member.iteration for member in members)),
        )
        return {
            place: Iterated(
                prompts=len(batch),
                steps=len(batch),
                tokens=sum(len(prompt.target) for prompt in batch),
                signal=updates[place].signal,
                reward=None,
                metrics=updates[place].metrics,
            )
            for place, batch in batches.items()
        }

    def judge(self, places: Sequence[int], prompts: Sequence[Prompt]) -> dict[int, Judged]:
        """Minus nats per completion token, one place after the other, so that no place's packs hold another's."""
        return {place: self._judged(place, prompts) for place in places}

    def _judged(self, place: int, prompts: Sequence[Prompt]) -> Judged:
        """A row's score is its share of the mean over all tokens, so that rows can be paired."""
        examples = _examples(place, prompts)
        share = len(examples) / sum(len(example.target_ids) for example in examples)
        likelihood = sft.log_likelihood(self.learner, examples)  # per token of each row
        scores = [
            value * len(example.target_ids) * share
            for value, example in zip(likelihood, examples, strict=True)
        ]
        return Judged(scores=tuple(scores), probe=probe(self.learner, place, prompts[0]))

    def _settings(self, member: Member) -> sft.SftSettings:
        own = member.hyperparameters
        return sft.SftSettings(
            lr=own["lr"],
            max_grad_norm=own["max_grad_norm"],
            update_epochs=int(own["update_epochs"]),
            dropout=self.dropout,
        )


def _examples(place: int, prompts: Sequence[Prompt]) -> list[sft.Example]:
    return [sft.Example(place, prompt.ids, prompt.target) for prompt in prompts]
