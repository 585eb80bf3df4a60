"""Shapes of the base models in the models folder, for plans to say whether a run fits."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from arena_gitops.spec.memory import ModelFacts, facts_of
from arena_runner.server.world import World


def at_hand(world: World) -> tuple[ModelFacts, ...]:
    """Under their folders' names, and under the names that this server exchanges for them."""
    folder = world.home.models
    found: dict[str, ModelFacts] = {}
    for depth in ("*/config.json", "*/*/config.json"):
        for config in folder.glob(depth):
            facts = _read(config, config.stat().st_mtime_ns)
            if facts is not None:
                name = config.parent.relative_to(folder).as_posix()
                found[name] = facts.model_copy(update={"id": name})
    for asked, used in world.settings.models.map.items():
        if used in found:
            found[asked] = found[used].model_copy(update={"id": asked})
    return tuple(found[name] for name in sorted(found))


@lru_cache(maxsize=256)
def _read(config: Path, _changed: int) -> ModelFacts | None:
    try:
        return facts_of(config.parent.name, json.loads(config.read_text("utf-8")))
    except (OSError, ValueError):
        return None
