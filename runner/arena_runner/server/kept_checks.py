"""The newest report of checks over the same rows and the same reward, kept so that a run's page in MLflow can show it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks.report import Report, report
from arena_runner.server import profiles
from arena_runner.server.world import World

MOST = 500
"""reports; the oldest go"""

log = logging.getLogger(__name__)


def keep(world: World, request: CheckRequest, results: Sequence[CheckResult]) -> None:
    """Keep it, and what it says of an environment; a disk that is full costs the report, not the check."""
    for result in results:
        if result.profile is not None:
            profiles.keep(world, result.profile)
    path = _path(world, request.inputs)
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(exist_ok=True)
        part.write_text(report(request, results).model_dump_json(), encoding="utf-8")
        part.replace(path)
        for old in sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-MOST]:
            old.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("the report of %s was not kept: %s", request.address, problem)


def find(world: World, inputs: JobInputs) -> Report | None:
    """What was found in these inputs; None where they were never checked here."""
    try:
        return Report.model_validate_json(_path(world, inputs).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as problem:
        log.warning("a report of checks cannot be read: %s", problem)
        return None


def _path(world: World, inputs: JobInputs) -> Path:
    parts = [part.model_dump(mode="json") if part else None for part in (inputs.dataset, inputs.reward)]
    return world.home.root / "checks" / f"{sha256_json(parts).removeprefix('sha256:')}.json"
