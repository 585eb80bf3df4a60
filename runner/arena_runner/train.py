"""THE loop: generations x members, readable top to bottom.

One turn: evolve if a generation has ended, one iteration of every member that has not reached `max_steps`, evaluate
and export if due, save. Everything that decides *when* is in `schedule`, *what* an iteration is in `rollouts`, the
maths in `algorithms`, and who is copied where in `population`. The loop reads no clock except to report speed, and
a run is a function of its job and the stored budgets: a kill at any instant loses at most one iteration, and the
resumed run equals the uninterrupted one.

Called by `worker` and `foreground`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import (
    Checkpoint,
    CheckpointSaved,
    Evaluation,
    Evolution,
    FailureReason,
    Filmed,
    Finished,
    JobSpec,
    Lineage,
    Log,
    Progress,
    ResumeStateSaved,
    RunState,
    Sample,
    TestScored,
    TestScores,
)
from arena_runner import checkpoint, metrics
from arena_runner.checkpoint import Standing, Tensors
from arena_runner.faults import OutsideError
from arena_runner.opening import open_parts
from arena_runner.parts import Parts
from arena_runner.population.lineage import evolve, mean, standard_error
from arena_runner.population.member import Member
from arena_runner.population.mutate import NETWORK
from arena_runner.population.tournament import fittest
from arena_runner.ports import InterruptedRunError, Materials, Stop, TrainPorts
from arena_runner.rollouts.task import Iterated, Judged
from arena_runner.trained import Lived

PATIENCE = 10
"""iterations in a row without any signal after which a run fails instead of spending more"""


DIVERGED = (
    "{} has diverged: its gradients are no numbers, and it learned nothing in this iteration. It stays as it is until "
    "evolution overwrites it; a lower learning rate would have spared it"
)


class NoSignalError(ArenaError):
    """The reward gave every completion of a group the same score, again and again."""


def train(job: JobSpec, materials: Materials, ports: TrainPorts) -> Finished:
    """Run one segment of a run to its end, and say how it ended.

    Raises:
        InterruptedRunError: The process was told to go; the run is not over.
    """
    try:
        with open_parts(job, materials, ports) as parts:
            return run(parts, materials, ports)
    except InterruptedRunError:
        raise
    except OutsideError as error:
        return Finished(state=RunState.FAILED, reason=FailureReason.INFRA, message=str(error))
    except ArenaError as error:  # all of these are for the user to mend; none goes away by itself
        return Finished(state=RunState.FAILED, reason=FailureReason.USER_CODE, message=str(error))
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        return Finished(state=RunState.FAILED, reason=FailureReason.OOM, message=_memory_hint(error))


def run(parts: Parts, materials: Materials, ports: TrainPorts) -> Finished:
    """Train opened parts to the end of the segment; errors are the caller's to tell."""
    return _Run(parts, materials, ports).to_the_end()


class _Run:
    """The moving parts of a segment: where the run stands, and what was just judged."""

    def __init__(self, parts: Parts, materials: Materials, ports: TrainPorts) -> None:
        self.parts = parts
        self.ports = ports
        self.at: Standing = parts.standing
        self._best: Mapping[str, Tensor] = parts.best
        self._folder = materials.workdir
        self._judged: dict[int, Judged] = {}
        self._pages = dict(parts.pages)
        checkpoint.forget_after(self._folder / "states", self.at.iteration)
        self._began = (time.monotonic(), {member.index: member.step for member in self.at.members})

    def to_the_end(self) -> Finished:
        """The whole training, one turn per iteration; what is asked for may become less at the end of each."""
        while not self.over():
            schedule = self.parts.schedule
            if schedule.evolves_after(self.at.iteration) and self.at.evolved_at < self.at.iteration:
                self.evolve()
            self.iterate()
            self._take_cap()
            if schedule.evaluates_after(self.at.iteration) or not self.active():
                self.evaluate()
            if schedule.checkpoints_after(self.at.iteration):
                self.export(self.at.members)
            self.save()
            if (why := self.ports.stop()) is not None and not self.over():
                return _ended(why)
        self.close()
        schedule = self.parts.schedule
        capped = schedule.max_steps < schedule.asked_steps
        return Finished(
            state=RunState.COMPLETED,
            message=f"capped at {schedule.max_steps} of {schedule.asked_steps}" if capped else "",
        )

    def _take_cap(self) -> None:
        """Fewer steps than the segment began with: looked for before it is decided whether this was the last one."""
        before = self.parts.schedule
        schedule = before.capped(self.ports.cap())
        if schedule is not before:
            self.parts = replace(self.parts, schedule=schedule)
            message = f"{schedule.max_steps:,} steps are asked for now, not {before.max_steps:,}"
            self.ports.emit(Log(level="info", message=message))

    def active(self) -> list[Member]:
        """Members that have steps left."""
        return [member for member in self.at.members if not self.parts.schedule.stopped(member)]

    def over(self) -> bool:
        """Whether all have stopped, or an evaluation at this very point reached the target."""
        reached = self.at.evaluated_at == self.at.iteration and self.parts.schedule.reached(self.fitness())
        return reached or not self.active()

    def fitness(self) -> list[float]:
        """Of every place, from the last evaluation."""
        return [mean(rows) for rows in self.at.scores]

    def iterate(self) -> None:
        """One optimizer phase of every active member, in one launch."""
        active, began = self.active(), time.monotonic()
        done = self.parts.task.iterate(active)
        seconds = time.monotonic() - began
        after = {
            member.index: member.after_iteration(
                prompts=done[member.index].prompts,
                steps=done[member.index].steps,
                signal=done[member.index].signal,
            )
            for member in active
        }
        members = tuple(after.get(member.index, member) for member in self.at.members)
        self.at = self.at.model_copy(update={"members": members, "iteration": self.at.iteration + 1})
        self._judged = {}
        for member in active:
            self.ports.emit(metrics.of_iteration(member, done[member.index], seconds=seconds))
            if not math.isfinite(done[member.index].metrics.get("grad_norm", 0.0)):
                self.ports.emit(Log(level="warning", message=DIVERGED.format(member.name)))
            self.ports.emit(self._progress(after[member.index], done[member.index], seconds))
        least = min(m.step for m in members)
        self.ports.emit(metrics.of_process(least, seconds=seconds, **self.parts.process()))
        if all(member.silent >= PATIENCE for member in after.values()):
            raise NoSignalError(_silence(done))

    def evaluate(self) -> None:
        """Fitness of every place on the same rows; the fittest is exported as it was scored."""
        self.judge()
        scores = tuple(self._judged[member.index].scores for member in self.at.members)
        self.at = self.at.model_copy(update={"scores": scores, "evaluated_at": self.at.iteration})
        for member, fitness in zip(self.at.members, self.fitness(), strict=True):
            if fitness != fitness:  # noqa: PLR0124 - NaN: the member diverged, and a figure must not be invented
                self.ports.emit(Log(level="warning", message=f"{member.name} has no fitness: it diverged"))
                continue
            self.ports.emit(
                Evaluation(
                    member=member.index,
                    step=member.step,
                    generation=self.at.generation,
                    fitness=fitness,
                    values=metrics.of_evaluation(self._judged[member.index]),
                )
            )
        winner = self.at.members[fittest(self.fitness())]
        self.export([winner])
        for shown in islice(self._judged[winner.index].transcripts, 2):
            self.ports.emit(
                Sample(
                    member=winner.index,
                    step=winner.step,
                    prompt=shown.prompt,
                    completion=shown.completion,
                    reward=shown.reward,
                )
            )

    def judge(self) -> None:
        """Score all places once per iteration; changes nothing."""
        if not self._judged:
            places = [member.index for member in self.at.members]
            self._judged = self.parts.task.judge(places, self.parts.held.eval)

    def evolve(self) -> None:
        """End a generation: copy winners over losers, weights and moments alike, and mutate the copies."""
        waiting = frozenset(m.index for m in self.at.members if self.parts.schedule.stopped(m))
        generation = self.at.generation + 1
        evolved = evolve(self.at.members, self.at.scores, self.parts.rules, generation, waiting)
        for parent, place in evolved.copies:
            self.parts.trained.copy(parent, place)
            if self.parts.lived is not None:
                self.parts.lived.overwritten(place, parent)
        records = tuple(self._mutated(record, generation) for record in evolved.records)
        self.at = self.at.model_copy(
            update={
                "members": evolved.members,
                "generation": generation,
                "evolved_at": self.at.iteration,
                "lineage": self.at.lineage + records,
            }
        )
        self.ports.emit(Evolution(generation=generation, records=records))

    def _mutated(self, record: Lineage, generation: int) -> Lineage:
        """Perform the mutation of a copy's network; the record then says how."""
        if record.mutation not in NETWORK:
            return record
        how = self.parts.trained.mutate(record.member, record.mutation, generation)
        return record.model_copy(update={"mutation": f"{record.mutation}: {how}"})

    def export(self, members: Sequence[Member]) -> None:
        """Save adapters for use; one that was exported at this step already is not saved again."""
        known = {(export.step, export.member) for export in self.at.exports}
        scored = self.at.evaluated_at == self.at.iteration
        fitness = self.fitness() if scored else []
        for member in members:
            if (member.step, member.index) in known:
                continue
            value = fitness[member.index] if scored else None
            export, saved = checkpoint.save_export(
                self._folder / "exports",
                self.parts.trained,
                member,
                generation=self.at.generation,
                judged=self._judged.get(member.index) if scored else None,
                fitness=value if value == value else None,  # noqa: PLR0124 - NaN is no fitness
            )
            self.at = self.at.model_copy(update={"exports": (*self.at.exports, export)})
            if checkpoint.best(self.at.exports) == export:
                self._best = self.parts.trained.export(member.index)
            self.ports.emit(CheckpointSaved(checkpoint=export), saved.files)

    def save(self) -> None:
        """Write the resume state of this iteration."""
        weights, moments = self.parts.trained.state()
        lived: Mapping[str, Tensor] = {}
        page = None
        if self.parts.lived is not None:
            lived = self.parts.lived.state()
            page = self._page(self.parts.lived)
        tensors = Tensors(weights, moments, self._best, lived, page, self._pages)
        state, saved = checkpoint.save_state(self._folder / "states", self.at, tensors)
        self._pages = {
            n: (saved.folder / n, digest) for n, digest in saved.digests.items() if n.startswith("page-")
        }
        self.ports.emit(ResumeStateSaved(state=state), saved.files)

    def _page(self, lived: Lived) -> tuple[str, Mapping[str, Tensor]] | None:
        """The newest page of the replay; those that are overwritten by now are let go."""
        known = max((checkpoint.span(name)[1] for name in self._pages), default=0)
        mark, rows = lived.pages(known)
        oldest = mark - lived.kept
        self._pages = {name: one for name, one in self._pages.items() if checkpoint.span(name)[1] > oldest}
        return (checkpoint.PAGE.format(known, mark), rows) if mark > known else None

    def close(self) -> None:
        """Export every member, and score base and best once on rows nobody has seen."""
        if self.at.evaluated_at == self.at.iteration:
            self.judge()
        else:  # what is asked for became less between two segments
            self.evaluate()
        self.export(self.at.members)
        self.save()
        best = checkpoint.best(self.at.exports)
        if self.parts.held.test:
            self._score("base", self.parts.origin, None, None)
            if best is not None:
                self._score("best", self._best, best.step, best.member)
        if best is not None:
            self._film(best)

    def _film(self, best: Checkpoint) -> None:
        """An episode to look at, as the best plays it; a picture is no reason to lose a run."""
        if self.parts.film is None:
            return
        path = self._folder / "replay" / "replay.gif"
        self.parts.trained.load(0, self._best)
        try:
            made = self.parts.film(path)
        except Exception as problem:  # noqa: BLE001 - drawing is code of users and of libraries; what it says is told
            self.ports.emit(Log(level="warning", message=f"no replay: {problem}"))
            return
        if made is not None:
            digest = checkpoint.file_digest(path)
            told = Filmed(
                member=best.member,
                step=best.step,
                steps=made.steps,
                reward=made.paid,
                files={path.name: digest},
            )
            self.ports.emit(told, {digest: path})

    def _score(self, label: str, adapter: Mapping[str, Tensor], step: int | None, member: int | None) -> None:
        """Score one adapter on the test split, in place 0: training is over and its state saved."""
        self.parts.trained.load(0, adapter)
        judged = self.parts.task.judge([0], self.parts.held.test)[0]
        columns = {"reward": judged.scores, **judged.parts}
        self.ports.emit(
            TestScored(
                scores=TestScores(
                    label="base" if label == "base" else "best",
                    rows=len(judged.scores),
                    mean=metrics.named({name: mean(rows) for name, rows in columns.items()}),
                    stderr=metrics.named({name: standard_error(rows) for name, rows in columns.items()}),
                    step=step,
                    member=member,
                )
            )
        )

    def _progress(self, member: Member, done: Iterated, seconds: float) -> Progress:
        """For people; the only use of the clock."""
        began, steps = self._began
        gained = member.step - steps[member.index]
        left = max(0, self.parts.schedule.max_steps - member.step)
        return Progress(
            member=member.index,
            step=member.step,
            max_steps=self.parts.schedule.max_steps,
            iteration=member.iteration,
            reward=done.reward,
            tokens_per_second=done.tokens / seconds
            if seconds > 0 and done.rate == "tokens_per_second"
            else None,
            eta_seconds=(time.monotonic() - began) / gained * left if gained else None,
        )


def _ended(why: Stop) -> Finished:
    match why:
        case Stop.ASKED:
            return Finished(state=RunState.STOPPED, message="stopped on request; it can be resumed")
        case Stop.INTERRUPTED | Stop.FENCED:
            raise InterruptedRunError(why)


def _silence(done: Mapping[int, Iterated]) -> str:
    """Say what was seen, so that the author of the reward can see why nothing can be learned from it."""
    shown = [t for iterated in done.values() for t in iterated.transcripts][:3]
    lines = [f"  reward {t.reward:g} for {t.completion!r} (question: {t.prompt!r})" for t in shown]
    return (
        f"no signal: in {PATIENCE} iterations in a row every completion of a group got the same reward, so there "
        "was nothing to learn. Make the reward tell completions apart (give part of it for part of the task), or "
        "raise group_size or temperature. Completions of the last iteration:\n" + "\n".join(lines)
    )


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error)


def _memory_hint(error: BaseException) -> str:
    return (
        f"out of memory ({str(error).splitlines()[0] if str(error) else type(error).__name__}); lower "
        "max_context_length, max_output_tokens, batch_size or group_size, or choose a larger tier"
    )
