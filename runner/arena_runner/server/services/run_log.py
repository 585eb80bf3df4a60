"""A run's log: what its workers print, whoever started them, and what the server has to say about it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from arena_gitops.spec.job import JobEvent
from arena_runner.narrate import line
from arena_runner.server.world import World

NOTE = " server: "
"""Marks the server's own lines in a run's log."""


def path(world: World, run_id: str) -> Path:
    """Where the lines are."""
    return world.home.run(run_id) / "logs" / "worker.log"


def note(world: World, run_id: str, lines: Iterable[str]) -> None:
    """Add lines of the server's own."""
    stamp = datetime.fromtimestamp(world.clock(), UTC).isoformat(timespec="seconds")
    _append(world, run_id, [f"{stamp}{NOTE}{text}" for text in lines])


def narrate(world: World, run_id: str, events: Iterable[JobEvent]) -> None:
    """Add what a worker of another machine reported; those of this machine write the file themselves."""
    told = [text for event in events if (text := line(event))]
    if told:
        _append(world, run_id, told)


def _append(world: World, run_id: str, lines: list[str]) -> None:
    target = path(world, run_id)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in lines)
