"""`RunPair`: a run as the store knows it, in its two rows."""

from __future__ import annotations

from dataclasses import dataclass

from arena_gitops.spec.job import RunState
from arena_runner.server.store.tables import RunRow, RunStateRow

AT_WORK = (RunState.VALIDATING, RunState.RUNNING)
"""States in which a worker holds a run."""


@dataclass(frozen=True, slots=True)
class RunPair:
    """What a run shall be, and what it is."""

    run: RunRow
    state: RunStateRow
