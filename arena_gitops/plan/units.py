"""How much training a text experiment asks for, in numbers people can check before they pay.

Units are per member (training.md §4): `max_steps` counts completions scored (SFT and DPO: rows), one
iteration is one optimizer phase, and a member stops at the first iteration end at or past `max_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.plan.classify import spec_at


@dataclass(frozen=True, slots=True)
class Units:
    """What the whole run amounts to."""

    members: int
    per_iteration: int
    """completions (or rows) of one member in one iteration"""
    iterations: int
    """of each member"""
    generations: int
    """evolutions of each member"""
    total: int
    """completions (or rows) of all members together"""
    noun: str


def units_of(spec: Mapping[str, Any], cap: int | None = None) -> Units | None:
    """Count a stored experiment; None where its manifest does not say enough (not a text algorithm)."""
    manifest = spec.get("manifest", {})
    batch = _whole(manifest, "algorithm.batch_size")
    max_steps = _whole(manifest, "training.max_steps")
    if not batch or not max_steps or not spec_at(manifest, "network.pretrained_model_name_or_path"):
        return None
    steps = max_steps if cap is None else min(max_steps, cap)
    group = _whole(manifest, "algorithm.group_size")
    per_iteration = batch * (group or 1)
    iterations = -(-steps // per_iteration)
    evo_steps = _whole(manifest, "training.evo_steps")
    members = _whole(manifest, "training.pop_size") or 1
    return Units(
        members=members,
        per_iteration=per_iteration,
        iterations=iterations,
        generations=iterations // evo_steps if evo_steps else 0,
        total=members * iterations * per_iteration,
        noun="completions" if group else "rows",
    )


def describe(spec: Mapping[str, Any], cap: int | None = None) -> tuple[str, ...]:
    """The units as lines for people."""
    units = units_of(spec, cap)
    if units is None:
        return ()
    max_steps = spec_at(spec, "manifest.training.max_steps")
    algorithm = spec_at(spec, "manifest.algorithm.name")
    each = f"{_count(units.iterations, 'iteration')} of {units.per_iteration:,} {units.noun}"
    evolved = f"{_count(units.generations, 'generation')}; {units.total:,} {units.noun} in all"
    lines = [
        f"{algorithm}: {_count(units.members, 'member')}, each {each} and {evolved}",
        f"max_steps {max_steps:,} counts {units.noun} per member",
    ]
    if cap is not None and cap < max_steps:
        lines.append(f"this platform ends every run at {cap:,} steps (limits.max_steps)")
    return tuple(lines)


def _whole(manifest: Mapping[str, Any], path: str) -> int:
    value = spec_at(manifest, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
