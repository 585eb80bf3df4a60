"""Completions scored by a reward: one iteration of the GRPO family.

All members' prompts are generated in one call of the engine; finished completions are scored while others still
decode, and scores are put in row order, so what is learned does not depend on who finished first. Where groups of
equal rewards are dropped, the next prompts of the stream are asked in their place, twice at most (DAPO).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from arena_gitops.spec.knobs import GroupKnobs
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
REFILLS = 2
"""rounds in which dropped groups are replaced; what is missing then stays missing"""
CISPO_CAP = 5.0
"""epsilon_max of a `loss_type: cispo` that does not say"""

Groups = Sequence[Sequence["Answer"]]


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
    knobs: GroupKnobs
    longest: int
    """`max_context_length`"""
    seed: int

    def iterate(self, members: Sequence[Member]) -> dict[int, Iterated]:
        """Generate for all members in one call, score, and update all of them in one launch."""
        batches = self._batches(members)
        learned = [
            ScoredGroup(place, group[0].prompt.ids, tuple(a.completion for a in group), self._rewards(group))
            for place, batch in batches.items()
            for group in batch
            if not (self.knobs.filter_zero_adv and self._silent(group))
        ]
        updates = grpo.update(self.learner, learned, {m.index: self._settings(m) for m in members})
        return {place: self._iterated(batch, updates[place]) for place, batch in batches.items()}

    def _batches(self, members: Sequence[Member]) -> dict[int, Groups]:
        """Each member's scored groups: its batch, and what was asked in place of groups that teach nothing."""
        batches: dict[int, list[Sequence[Answer]]] = {member.index: [] for member in members}
        for _ in range(1 + REFILLS if self.knobs.filter_zero_adv else 1):
            missing = [(m, count) for m in members if (count := self._missing(m, batches[m.index]))]
            done = {place: len(groups) for place, groups in batches.items()}
            for place, groups in self._asked(missing, done).items():
                batches[place] += groups
        return dict(batches)

    def _missing(self, member: Member, groups: Groups) -> int:
        return int(_own(member, "batch_size")) - sum(not self._silent(group) for group in groups)

    def _asked(self, counts: Sequence[tuple[Member, int]], done: Mapping[int, int]) -> dict[int, Groups]:
        """Answers to each member's next prompts, as many as its count; `done` of its iteration were asked before."""
        stream = Stream(len(self.prompts), self.seed)
        asked = [
            (member, [self.prompts[row] for row in stream.take(member.cursor + done[member.index], count)])
            for member, count in counts
        ]
        requests = [r for m, prompts in asked for r in self._requests(m, prompts, done[m.index])]
        owners = [p for m, prompts in asked for p in prompts for _ in range(_group_size(m))]
        answers = iter(self._answers(requests, owners))
        return {
            member.index: [[next(answers) for _ in range(_group_size(member))] for _ in prompts]
            for member, prompts in asked
        }

    def _rewards(self, group: Sequence[Answer]) -> tuple[float, ...]:
        """What is learned from: the scores, less the penalty of answers that run into the limit.

        The penalty rises from 0 to 1 over the last `overlong_buffer` of the room (DAPO, equation 13).
        """
        room = self._room(group[0].prompt)
        buffer = (self.knobs.overlong_buffer or 0.0) * room
        lengths = [len(answer.completion.token_ids) for answer in group]
        over = [max(0.0, length - room + buffer) / buffer if buffer else 0.0 for length in lengths]
        return tuple(answer.score.total - x for answer, x in zip(group, over, strict=True))

    def _silent(self, group: Sequence[Answer]) -> bool:
        """Whether nobody in the group did better than another."""
        return len(set(self._rewards(group))) == 1

    def judge(self, places: Sequence[int], prompts: Sequence[Prompt]) -> dict[int, Judged]:
        """Mean reward of greedy completions.

        One place after the other: a row's last bits depend on who shares its batch, and fitness may not.
        """
        return {place: self._judged(place, prompts) for place in places}

    def _judged(self, place: int, prompts: Sequence[Prompt]) -> Judged:
        requests = [Request(place, prompt.ids, self._room(prompt), greedy=True) for prompt in prompts]
        return _judged(self._answers(requests, prompts))

    def _requests(self, member: Member, prompts: Sequence[Prompt], first: int) -> Iterator[Request]:
        for k, prompt in enumerate(prompts, first):
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
        knobs, clip, high = self.knobs, _own(member, "clip_coef"), self.knobs.clip_coef_high
        cispo, level = knobs.loss_type == "cispo", knobs.importance_sampling_level
        whole = level in {"turn", "trajectory"} if level else knobs.loss_type == "gspo"
        cap = knobs.vllm_importance_sampling_cap
        return grpo.GrpoSettings(
            lr=_own(member, "lr"),
            beta=_own(member, "beta"),
            clip_low=clip,
            clip_high=high if high is not None else CISPO_CAP if cispo else clip,
            max_grad_norm=_own(member, "max_grad_norm"),
            update_epochs=int(_own(member, "update_epochs")),
            temperature=_own(member, "temperature"),
            normalisation=grpo.Normalisation(knobs.normalization),
            max_completion_tokens=knobs.max_output_tokens or self.longest,
            advantage=grpo.Advantage(knobs.adv_norm),
            kl=grpo.Kl(knobs.kl_estimator),
            surrogate=grpo.Surrogate.CISPO if cispo else grpo.Surrogate.CLIP,
            level=grpo.Level.SEQUENCE if whole else grpo.Level.TOKEN,
            importance_cap=None
            if knobs.vllm_importance_sampling_correction is False
            else 2.0
            if cap is None
            else cap,
        )

    def _iterated(self, batch: Groups, update: MemberUpdate) -> Iterated:
        answers = [answer for group in batch for answer in group]
        rewards = [answer.score.total for answer in answers]
        silent = sum(self._silent(group) for group in batch)
        return Iterated(
            prompts=len(batch),
            steps=len(answers),
            tokens=sum(len(answer.completion.token_ids) for answer in answers),
            signal=update.signal,
            reward=mean(rewards),
            metrics={
                "reward/mean": mean(rewards),
                "reward/std": spread(rewards),
                **{f"reward/{name}": mean(values) for name, values in _parts(answers).items()},
                **_lengths(answers),
                "groups_without_signal": silent,
                "groups_dropped": silent if self.knobs.filter_zero_adv else 0,
                "groups": len(batch),
                **update.metrics,
            },
            transcripts=_transcripts(answers),
        )


def _own(member: Member, name: str) -> float:
    return member.hyperparameters[name]


def _group_size(member: Member) -> int:
    return int(_own(member, "group_size"))


def _judged(answers: Sequence[Answer]) -> Judged:
    first = answers[0]
    return Judged(
        scores=tuple(answer.score.total for answer in answers),
        parts=_parts(answers),
        values=_lengths(answers),
        transcripts=_transcripts(answers),
        probe=Probe(first.prompt.ids, first.completion.token_ids, first.completion.logprobs),
    )


def _lengths(answers: Sequence[Answer]) -> dict[str, float]:
    return {
        "completion_length": mean([len(answer.completion.token_ids) for answer in answers]),
        "truncated_share": mean([answer.completion.finished_by == "length" for answer in answers]),
    }


def _parts(answers: Sequence[Answer]) -> Mapping[str, tuple[float, ...]]:
    """Components by name; a component that a row's reward left out counts 0 there."""
    names = sorted({name for answer in answers for name in answer.score.components})
    return {name: tuple(answer.score.components.get(name, 0.0) for answer in answers) for name in names}


def _transcripts(answers: Sequence[Answer]) -> tuple[Transcript, ...]:
    return tuple(
        Transcript(answer.prompt.row["question"], answer.text, answer.score.total)
        for answer in answers[:SHOWN]
    )
