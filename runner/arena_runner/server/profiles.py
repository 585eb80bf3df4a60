"""What environments cost, by their content: measured when they are checked, read by plans.

Kept as files beside the reports of checks: what is lost is measured again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from arena_gitops.spec.inputs import EnvironmentProfile
from arena_runner.server.world import World

MOST = 500
"""profiles; the oldest go"""

log = logging.getLogger(__name__)


def keep(world: World, found: EnvironmentProfile) -> None:
    """Keep it; a disk that is full costs the profile, not the check."""
    path = _folder(world) / f"{found.content.removeprefix('sha256:')}.json"
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(exist_ok=True)
        part.write_text(found.model_dump_json(), encoding="utf-8")
        part.replace(path)
        for old in sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-MOST]:
            old.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("the profile of an environment was not kept: %s", problem)


def known(world: World) -> Mapping[str, EnvironmentProfile]:
    """Everything that was measured, by content."""
    read = (_read(path, path.stat().st_mtime_ns) for path in sorted(_folder(world).glob("*.json")))
    return {found.content: found for found in read if found is not None}


def _folder(world: World) -> Path:
    return world.home.root / "profiles"


@lru_cache(maxsize=MOST)
def _read(path: Path, _changed: int) -> EnvironmentProfile | None:
    try:
        return EnvironmentProfile.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError) as problem:
        log.warning("the profile of an environment cannot be read: %s", problem)
        return None
