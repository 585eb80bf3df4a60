"""Where an observed resource is, in the words of the action matrix."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.wire import ResourceDocument


class Phase(StrEnum):
    """A column of the action matrix."""

    ABSENT = "absent"
    IDLE = "idle"
    """recorded, and nothing runs for it: every kind but an experiment"""
    QUEUED = "queued"
    """also validating: nothing has been spent yet"""
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    COMPLETED = "completed"

    @property
    def in_flight(self) -> bool:
        """Whether a run is waiting or working."""
        return self in {Phase.QUEUED, Phase.RUNNING}


def phase_of(document: ResourceDocument | None) -> Phase:
    """The column of one observed resource."""
    if document is None:
        return Phase.ABSENT
    return Phase.IDLE if document.run is None else phase_of_run(document.run)


def numbered(document: ResourceDocument) -> str:
    """The version a resource stands at, in words; an offline plan does not know its number."""
    return f"v{document.version}" if document.version else "the version before"


def phase_of_run(run: RunStatus) -> Phase:
    """The column of a run."""
    match run.state:
        case RunState.QUEUED | RunState.VALIDATING:
            return Phase.QUEUED
        case RunState.RUNNING:
            return Phase.RUNNING
        case RunState.STOPPED:
            return Phase.STOPPED
        case RunState.FAILED:
            return Phase.FAILED
        case RunState.COMPLETED:
            return Phase.COMPLETED
        case _:
            assert_never(run.state)
