"""Completions scored by a reward: one iteration of the GRPO family.

All members' prompts are generated in one call of the engine; finished completions are scored while others still
decode, and scores are put in row order, so what is learned does not depend on who finished first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_runner.algorithms import grpo
from arena_runner.engines.base import Completion, Engine, Request
from arena_runner.learner import Learner, MemberUpdate
from arena_runner.policy_batch import ScoredGroup
from arena_runner.population.lineage import mean, spread
from arena_runner.population.member import Member
from arena_runner.rollouts.prompts import Prompt
from arena_runner.rollouts.stream import Stream
from arena_runner.rollouts.task import Iterated, Judged, Probe, Transcript
from arena_runner.sandbox import RewardPool, Score, ScoreRow
from arena_runner.seeds import row_key

SHOWN = 3
"""transcripts kept of an iteration or evaluation"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion, its text and its score."""

    prompt: Prompt
    completion: Completion
    text: str
    score: Score


@dataclass(frozen=True, slots=True)
class Scored:
    """The task of the GRPO family."""

    learner: Learner
    engine: Engine
    pool: RewardPool
    prompts: Sequence[Prompt]
    knobs: GrpoKnobs
    longest: int
    """`max_context_length`"""
    seed: int

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """Generate for all members in one call, score, and update all of them in one launch."""
        stream = Stream(len(self.prompts), self.seed)
        asked = [
            (
                member,
                [self.prompts[row] for row in stream.take(member.cursor, int(_own(member, "batch_size")))],
            )
            for member in members
        ]
        requests = [request for member, prompts in asked for request in self._requests(member, prompts)]
        owners = [
            prompt for member, prompts in asked for prompt in prompts for _ in range(_group_size(member))
        ]
        answers = iter(self._answers(requests, owners))
        groups = {
            member.index: [[next(answers) for _ in range(_group_size(member))] for _ in prompts]
            for member, prompts in asked
        }
        updates = grpo.update(
            self.learner,
            [_scored_group(place, group) for place, batch in groups.items() for group in batch],
            {member.index: self._settings(member) for member in members},
        )
        return {place: _iterated(batch, updates[place]) for place, batch in groups.items()}

    def judge(self, places: Sequence[int], prompts: Sequence[Prompt]) -> dict[int, Judged]:
        """Mean reward of greedy completions.

        One place after the other: a row's last bits depend on who shares its batch, and fitness may not.
        """
        return {place: self._judged(place, prompts) for place in places}

    def _judged(self, place: int, prompts: Sequence[Prompt]) -> Judged:
        requests = [Request(place, prompt.ids, self._room(prompt), greedy=True) for prompt in prompts]
        return _judged(self._answers(requests, prompts))

    def _requests(self, member: Member, prompts: Sequence[Prompt]) -> Iterator[Request]:
        for k, prompt in enumerate(prompts):
            for c in range(_group_size(member)):
                yield Request(
                    member=member.index,
                    prompt_ids=prompt.ids,
                    max_new_tokens=self._room(prompt),
                    key=row_key(self.seed, member.index, member.iteration, k, c),
                    temperature=_own(member, "temperature"),
                )

    def _room(self, prompt: Prompt) -> int:
        room = self.longest - len(prompt.ids)
        return room if self.knobs.max_output_tokens is None else min(room, self.knobs.max_output_tokens)

    def _answers(self, requests: Sequence[Request], owners: Sequence[Prompt]) -> list[Answer]:
        """Generate, and score each completion as soon as it is there; answers are in the order of requests."""
        texts: dict[int, str] = {}
        with ThreadPoolExecutor(1, thread_name_prefix="score") as thread:
            scores: dict[int, Future[list[Score]]] = {}

            def submit(index: int, completion: Completion) -> None:
                texts[index] = self.learner.base.decode(completion.token_ids)
                row = owners[index].row
                scores[index] = thread.submit(
                    self.pool.score, [ScoreRow(row["question"], row["answer"], texts[index])]
                )

            completions = self.engine.generate(requests, submit)
            # In row order, so that of several faults the first row's is the one reported.
            return [
                Answer(owners[i], completion, texts[i], scores[i].result()[0])
                for i, completion in enumerate(completions)
            ]

    def _settings(self, member: Member) -> grpo.GrpoSettings:
        clip = _own(member, "clip_coef")
        high = self.knobs.clip_coef_high
        return grpo.GrpoSettings(
            lr=_own(member, "lr"),
            beta=_own(member, "beta"),
            clip_low=clip,
            clip_high=clip if high is None else high,
            max_grad_norm=_own(member, "max_grad_norm"),
            update_epochs=int(_own(member, "update_epochs")),
            temperature=_own(member, "temperature"),
            normalisation=grpo.Normalisation(self.knobs.normalization),
            max_completion_tokens=self.knobs.max_output_tokens or self.longest,
            advantage=grpo.Advantage(self.knobs.adv_norm),
            kl=grpo.Kl(self.knobs.kl_estimator),
        )


def _own(member: Member, name: str) -> float:
    return member.hyperparameters[name]


def _group_size(member: Member) -> int:
    return int(_own(member, "group_size"))


def _scored_group(place: int, group: Sequence[Answer]) -> ScoredGroup:
    return ScoredGroup(
        member=place,
        prompt_ids=group[0].prompt.ids,
        completions=tuple(answer.completion for answer in group),
        rewards=tuple(answer.score.total for answer in group),
    )


def _iterated(batch: Sequence[Sequence[Answer]], update: MemberUpdate) -> Iterated:
    answers = [answer for group in batch for answer in group]
    rewards = [answer.score.total for answer in answers]
    silent = sum(len({answer.score.total for answer in group}) == 1 for group in batch)
    tokens = [len(answer.completion.token_ids) for answer in answers]
    return Iterated(
        prompts=len(batch),
        steps=len(answers),
        tokens=sum(tokens),
        signal=update.signal,
        reward=mean(rewards),
        metrics={
            "reward/mean": mean(rewards),
            "reward/std": spread(rewards),
            **{f"reward/{name}": mean(values) for name, values in _parts(answers).items()},
            "completion_length": mean(tokens),
            "truncated_share": mean([answer.completion.finished_by == "length" for answer in answers]),
            "groups_without_signal": silent,
            "groups": len(batch),
            **update.metrics,
        },
        transcripts=_transcripts(answers),
    )


def _judged(answers: Sequence[Answer]) -> Judged:
    first = answers[0]
    return Judged(
        scores=tuple(answer.score.total for answer in answers),
        parts=_parts(answers),
        values={
            "completion_length": mean([len(answer.completion.token_ids) for answer in answers]),
            "truncated_share": mean([answer.completion.finished_by == "length" for answer in answers]),
        },
        transcripts=_transcripts(answers),
        probe=Probe(first.prompt.ids, first.completion.token_ids, first.completion.logprobs),
    )


def _parts(answers: Sequence[Answer]) -> Mapping[str, tuple[float, ...]]:
    """Components by name; a component that a row's reward left out counts 0 there."""
    names = sorted({name for answer in answers for name in answer.score.components})
    return {name: tuple(answer.score.components.get(name, 0.0) for answer in answers) for name in names}


def _transcripts(answers: Sequence[Answer]) -> tuple[Transcript, ...]:
    return tuple(
        Transcript(answer.prompt.row["question"], answer.text, answer.score.total)
        for answer in answers[:SHOWN]
    )
