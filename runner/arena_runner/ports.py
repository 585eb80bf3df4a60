"""What the training loop asks of whoever runs it: a place for events, a reason to stop, files on disk.

A worker answers with a journal that a server reads, the foreground command with a terminal. The loop knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import JobEvent
from arena_runner.sandbox.packages import Wheels

Files = Mapping[str, Path]
"""digest → the local file with those bytes"""


class Stop(StrEnum):
    """Why a run should end at the end of this iteration."""

    ASKED = "asked"
    """a person stopped it: the run ends `stopped`"""
    INTERRUPTED = "interrupted"
    """this process must go; the run continues elsewhere from its resume state"""
    FENCED = "fenced"
    """the job belongs to somebody else now; nothing more may be reported"""


class InterruptedRunError(ArenaError):
    """The process was told to go; the resume state of the last iteration is on disk."""

    def __init__(self, why: Stop) -> None:
        self.why = why
        super().__init__(f"the run was {why} and can be resumed")


class TrainPorts(Protocol):
    """The loop's only way out."""

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Must keep the event in order; `files` holds what the event's digests name. Must not wait for a server."""
        ...

    def stop(self) -> Stop | None:
        """Whether to end now; asked at iteration ends only."""
        ...

    def cap(self) -> int | None:
        """Steps that are still asked for, where they may have become fewer; asked at iteration ends only."""
        ...


@dataclass(frozen=True, slots=True)
class Materials:
    """Where a job's inputs lie on this machine."""

    workdir: Path
    """states and exports are written below it"""
    dataset: tuple[Path, ...] = ()
    """empty: rows come from the hub"""
    reward: Path | None = None
    """folder that holds `inputs.reward.files` under their repository paths"""
    environment: Path | None = None
    """folder that holds `inputs.environment.files` under their own names"""
    base: Path | None = None
    """folder with the adapter the experiment starts from"""
    resume: Path | None = None
    """folder with the resume state's files"""
    models_dir: Path | None = None
    wheels: Wheels | None = None
    """what the reward or the environment requires; None: from this machine's package index"""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """values of the secrets that the job's reward names; on no disk"""
