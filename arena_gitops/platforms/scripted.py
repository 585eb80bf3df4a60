"""Runs of the in-memory platform: how they go is a script, given when the platform is made.

A script never pretends to train: it moves a run to a state, with the fitness and the message it was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import (
    Checkpoint,
    CheckpointSaved,
    FailureReason,
    Finished,
    JobEvent,
    RunState,
    RunStatus,
)


@dataclass(frozen=True, slots=True)
class RunScript:
    """What happens to a run as soon as it is queued."""

    state: RunState
    step: int | None = None
    """where it is then; None: at its `max_steps`"""
    fitness: float | None = None
    reason: FailureReason | None = None
    message: str = ""
    checkpoint: bool = False
    """whether it leaves one at that step"""
    step_s: float = 0.0
    """worker time of a step"""

    @classmethod
    def completes(cls, *, fitness: float = 1.0, step_s: float = 0.0) -> Self:
        """It ends at once, with one checkpoint of this fitness."""
        return cls(RunState.COMPLETED, fitness=fitness, checkpoint=True, step_s=step_s)

    @classmethod
    def stays_queued(cls) -> Self:
        """Nobody takes it."""
        return cls(RunState.QUEUED, step=0)

    @classmethod
    def stays_running(cls, *, step: int = 0) -> Self:
        """It has got as far as `step` and goes no further."""
        return cls(RunState.RUNNING, step=step)

    @classmethod
    def fails(
        cls,
        message: str = "the reward raised",
        *,
        reason: FailureReason = FailureReason.USER_CODE,
        step: int = 0,
        checkpoint: bool = False,
    ) -> Self:
        """It fails at `step`, with or without a checkpoint to resume from."""
        return cls(RunState.FAILED, step=step, reason=reason, message=message, checkpoint=checkpoint)

    def play(self, run: RunStatus) -> RunStatus:
        """The run after the script."""
        step = run.max_steps if self.step is None else min(self.step, run.max_steps)
        saved = self._saved(run, step) if self.checkpoint else None
        checkpoints = run.checkpoints if saved is None else (*run.checkpoints, saved)
        started = self.state is not RunState.QUEUED
        return run.model_copy(
            update={
                "state": self.state,
                "reason": self.reason,
                "message": self.message,
                "step": step,
                "spent_s": self.step_s * step,
                "segments": run.segments + started,
                "checkpoints": checkpoints,
                "best": best_of(checkpoints),
            }
        )

    def _saved(self, run: RunStatus, step: int) -> Checkpoint:
        digest = sha256_json([run.run_id, step])
        return Checkpoint(
            step=step,
            member=0,
            generation=0,
            fitness=self.fitness,
            digest=digest,
            files={"adapter_model.safetensors": digest},
            size_bytes=0,
        )


def best_of(checkpoints: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """The fittest checkpoint, the earliest of equals; None when none has a fitness."""
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.fitness is not None]
    return max(scored, key=lambda c: (c.fitness or 0.0, -c.step), default=None)


def history(before: RunStatus, after: RunStatus, *, first_seq: int, now: float) -> tuple[JobEvent, ...]:
    """The events a worker would have reported between two states of a run."""
    events: list[JobEvent] = []
    for checkpoint in after.checkpoints[len(before.checkpoints) :]:
        events.append(CheckpointSaved(seq=first_seq + len(events), ts=now, checkpoint=checkpoint))
    if after.state in {RunState.COMPLETED, RunState.STOPPED, RunState.FAILED} and before.state != after.state:
        events.append(
            Finished(
                seq=first_seq + len(events),
                ts=now,
                state=after.state,
                reason=after.reason,
                message=after.message,
            )
        )
    return tuple(events)
