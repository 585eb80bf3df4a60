"""The action matrix as data: cause of a change by where the resource is gives what is done.

This table is the policy of the project in one screen. `classify` finds the causes, `build` takes the most
severe outcome; nothing else decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from arena_gitops.plan.model import Action
from arena_gitops.plan.phase import Phase


class Cause(StrEnum):
    """A row of the matrix: the meaning of a difference."""

    NONE = "unchanged"
    METADATA = "metadata_changed"
    COSMETIC = "cosmetic_change"
    """what only reads differently: comments, docstrings, layout, where files lie; the same rows in other quotes"""
    ROTATED = "secret_rotated"
    """a secret has another value: nobody here knows what it does, so nothing is trained anew by itself"""
    BUDGET_RAISED = "budget_raised"
    """there is more to train than the run was asked for"""
    BUDGET_SATISFIED = "budget_satisfied"
    """less is asked for than was done: nothing is taken back"""
    BUDGET_LOWERED = "budget_lowered"
    """less is asked for than the run, which has not ended, was given: it ends there"""
    BUDGET_RECORDED = "budget_recorded"
    """a budget that starts and stops nothing, now or later"""
    CEILING_RAISED = "ceiling_raised"
    """more time or credits for the same work: only a run that did not get through can use them"""
    PLACEMENT = "placement_changed"
    OBSERVABILITY = "observability_changed"
    DEFINITION = "definition_changed"
    """of a kind that is not trained: rule of a deployment, project settings"""
    RERUN = "rerun"
    """the same work is asked for once more"""
    SEMANTIC = "semantic_change"
    PARENT = "parent_changed"
    """what it builds on is trained anew"""
    REMOVED = "removed_from_repo"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell: the action, and whether it stops a run that is running."""

    action: Action
    interrupts: bool = False


_NOOP = Outcome(Action.NOOP)
_UPDATE = Outcome(Action.UPDATE)
_RESUME = Outcome(Action.RESUME)
_NEW = Outcome(Action.NEW_VERSION)
_CAP = Outcome(Action.CAP)
_HELD = Outcome(Action.HELD)
_RETIRE = Outcome(Action.RETIRE)


def _row(*cells: Outcome) -> dict[Phase, Outcome]:
    """Cells in the order of the columns below; what is absent is created whatever the cause."""
    columns = [phase for phase in Phase if phase is not Phase.ABSENT]
    return {Phase.ABSENT: Outcome(Action.CREATE), **dict(zip(columns, cells, strict=True))}


_MIGRATE = Outcome(Action.MIGRATE, interrupts=True)
_INTERRUPT_NEW = Outcome(Action.NEW_VERSION, interrupts=True)
_INTERRUPT_RETIRE = Outcome(Action.RETIRE, interrupts=True)

MATRIX: dict[Cause, dict[Phase, Outcome]] = {
    #                            idle     queued   running         stopped  failed   completed
    Cause.NONE: _row(            _NOOP,   _NOOP,   _NOOP,          _HELD,   _HELD,   _NOOP),
    Cause.METADATA: _row(        _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.COSMETIC: _row(        _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.ROTATED: _row(          _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.BUDGET_RAISED: _row(   _UPDATE, _UPDATE, _RESUME,        _RESUME, _RESUME, _RESUME),
    Cause.BUDGET_SATISFIED: _row(_UPDATE, _UPDATE, _NOOP,          _HELD,   _HELD,   _NOOP),
    Cause.BUDGET_LOWERED: _row(  _UPDATE, _UPDATE, _CAP,           _HELD,   _HELD,   _NOOP),
    Cause.BUDGET_RECORDED: _row( _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.CEILING_RAISED: _row(  _UPDATE, _UPDATE, _UPDATE,        _RESUME, _RESUME, _UPDATE),
    Cause.PLACEMENT: _row(       _UPDATE, _UPDATE, _MIGRATE,       _RESUME, _RESUME, _UPDATE),
    Cause.OBSERVABILITY: _row(   _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.DEFINITION: _row(      _UPDATE, _UPDATE, _UPDATE,        _UPDATE, _UPDATE, _UPDATE),
    Cause.RERUN: _row(           _NEW,    _NEW,    _INTERRUPT_NEW, _NEW,    _NEW,    _NEW),
    Cause.SEMANTIC: _row(        _NEW,    _NEW,    _INTERRUPT_NEW, _NEW,    _NEW,    _NEW),
    Cause.PARENT: _row(          _NEW,    _NEW,    _INTERRUPT_NEW, _NEW,    _NEW,    _NEW),
    Cause.REMOVED: _row(         _RETIRE, _RETIRE, _INTERRUPT_RETIRE, _RETIRE, _RETIRE, _RETIRE),
}  # fmt: skip


def outcome(cause: Cause, phase: Phase) -> Outcome:
    """The cell for one cause."""
    return MATRIX[cause][phase]


def same_outcome(cause: Cause, phase: Phase) -> tuple[Phase, ...]:
    """Every phase in which this cause leads to the same outcome: what a plan may find when it is applied."""
    wanted = MATRIX[cause][phase]
    return tuple(column for column, cell in MATRIX[cause].items() if cell == wanted)
