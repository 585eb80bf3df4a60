"""Fold a worker's events into what people are told about a run. Pure: summary and event in, summary out.

A resumed segment reports again what an earlier one already said: figures are overwritten, lineage keeps its
first record.
"""

from __future__ import annotations

from typing import Any, assert_never

from arena_gitops.spec.job import (
    CheckpointSaved,
    Evaluation,
    Evolution,
    Filmed,
    Finished,
    JobEvent,
    Lineage,
    Log,
    MemberStatus,
    Metrics,
    Progress,
    ResumeStateSaved,
    Sample,
    Started,
    TestScored,
    TestScores,
)
from arena_gitops.spec.resource import Frozen

WARNINGS = 20


class Summary(Frozen):
    """The newest figures of a run, apart from its checkpoints."""

    generation: int = 0
    members: tuple[MemberStatus, ...] = ()
    lineage: tuple[Lineage, ...] = ()
    test_scores: tuple[TestScores, ...] = ()
    device: str = ""
    trainer: str | None = None
    """version of the runner of the newest segment"""
    warnings: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The least advanced member's."""
        return min((m.step for m in self.members), default=0)


def fold(summary: Summary, event: JobEvent) -> Summary:  # noqa: PLR0911 - one answer per kind of event
    """What is known after `event`."""
    match event:
        case Started():
            return _with_members(summary, event)
        case Progress():
            return _update_member(summary, event.member, _progress(event))
        case Evaluation():
            newer = _update_member(summary, event.member, {"fitness": event.fitness})
            return newer.model_copy(update={"generation": max(summary.generation, event.generation)})
        case Evolution():
            return _with_lineage(summary, event)
        case TestScored():
            return _with_scores(summary, event.scores)
        case Log(level="warning"):
            return _with_warning(summary, event.message)
        case CheckpointSaved() | ResumeStateSaved() | Metrics() | Sample() | Filmed() | Log() | Finished():
            return summary
        case _:
            assert_never(event)


def _progress(event: Progress) -> dict[str, Any]:
    figures = ("step", "iteration", "reward", "tokens_per_second", "eta_seconds")
    return {name: getattr(event, name) for name in figures}


def _with_members(summary: Summary, event: Started) -> Summary:
    known = {m.member: m for m in summary.members}
    members = tuple(known.get(i, MemberStatus(member=i)) for i in range(event.members))
    trainer = event.versions.get("arena-runner")
    return summary.model_copy(update={"members": members, "device": event.device, "trainer": trainer})


def _update_member(summary: Summary, member: int, figures: dict[str, Any]) -> Summary:
    known = {m.member: m for m in summary.members}
    known[member] = known.get(member, MemberStatus(member=member)).model_copy(update=figures)
    return summary.model_copy(update={"members": tuple(known[i] for i in sorted(known))})


def _with_lineage(summary: Summary, event: Evolution) -> Summary:
    known = {(r.generation, r.member) for r in summary.lineage}
    new = tuple(r for r in event.records if (r.generation, r.member) not in known)
    generation = max(summary.generation, event.generation)
    return summary.model_copy(update={"lineage": summary.lineage + new, "generation": generation})


def _with_scores(summary: Summary, scores: TestScores) -> Summary:
    """A resume to more steps may find a better best: the newest score of a label counts."""
    others = tuple(s for s in summary.test_scores if s.label != scores.label)
    return summary.model_copy(update={"test_scores": (*others, scores)})


def _with_warning(summary: Summary, message: str) -> Summary:
    """Every segment warns again of the same; a worker that warns of everything is heard a few times."""
    if message in summary.warnings or len(summary.warnings) >= WARNINGS:
        return summary
    return summary.model_copy(update={"warnings": (*summary.warnings, message)})
