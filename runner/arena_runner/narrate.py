"""One line of text for an event, for a terminal or a log; None for those that only machines read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arena_gitops.spec.job import (
    CheckpointSaved,
    Evaluation,
    Evolution,
    Filmed,
    Finished,
    JobEvent,
    Lineage,
    Log,
    Progress,
    Started,
    TestScored,
)


def line(event: JobEvent) -> str | None:
    """What a person is told."""
    say = _SAY.get(type(event))
    return say(event) if say else None


def _started(event: Started) -> str:
    begun = f"resumed at iteration {event.resumed_at_iteration}" if event.resumed_at_iteration else "started"
    on = f" on {event.model.id}" if event.model else ""
    return (
        f"{begun}: {event.members} members{on}, {event.device} {event.dtype}, {event.threads} threads, "
        f"{event.max_steps} steps each"
    )


def _progress(event: Progress) -> str:
    parts = [f"m{event.member}  {event.step}/{event.max_steps}"]
    if event.reward is not None:
        parts.append(f"reward {event.reward:.3f}")
    if event.tokens_per_second is not None:
        parts.append(f"{event.tokens_per_second:.0f} tokens/s")
    if event.eta_seconds is not None:
        parts.append(f"{event.eta_seconds:.0f} s left")
    return "  ".join(parts)


def _evaluation(event: Evaluation) -> str:
    return f"m{event.member}  fitness {event.fitness:.4f} at step {event.step}"


def _evolution(event: Evolution) -> str:
    return "\n".join([f"generation {event.generation} ends", *(f"  {_record(r)}" for r in event.records)])


def _record(record: Lineage) -> str:
    own = "diverged" if record.fitness is None else f"{record.fitness:.4f}"
    if record.parent == record.member:
        return f"m{record.member} ({own}) stays"
    error = "" if record.paired_se is None else f" ± {record.paired_se:.4f}"
    better = "" if record.parent_fitness is None else f" ({record.parent_fitness:.4f}{error})"
    change = f", {record.mutation}" if record.mutation else ""
    if record.old is not None and record.new is not None:
        change += f" {record.old:g} → {record.new:g}"
    return f"m{record.member} ({own}) becomes a copy of m{record.parent}{better}{change}"


def _checkpoint(event: CheckpointSaved) -> str:
    saved = event.checkpoint
    fitness = "not scored" if saved.fitness is None else f"fitness {saved.fitness:.4f}"
    return f"saved {saved.label}, {fitness}, {saved.size_bytes / 1e6:.1f} MB"


def _filmed(event: Filmed) -> str:
    return f"replay of m{event.member} at step {event.step}: {event.steps} steps, paid {event.reward:g}"


def _test_scored(event: TestScored) -> str:
    scores = event.scores
    figures = ", ".join(
        f"{name} {value:.4f} ± {scores.stderr[name]:.4f}" for name, value in scores.mean.items()
    )
    return f"{scores.label} on {scores.rows} test rows: {figures}"


def _log(event: Log) -> str:
    return f"{event.level}: {event.message}"


def _finished(event: Finished) -> str:
    reason = f" ({event.reason})" if event.reason else ""
    return f"{event.state}{reason}" + (f": {event.message}" if event.message else "")


_SAY: dict[type, Callable[[Any], str]] = {
    Started: _started,
    Progress: _progress,
    Evaluation: _evaluation,
    Evolution: _evolution,
    CheckpointSaved: _checkpoint,
    TestScored: _test_scored,
    Filmed: _filmed,
    Log: _log,
    Finished: _finished,
}
