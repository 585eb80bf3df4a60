"""How much training a text experiment asks for, in numbers people can check before they pay.

Units are per member (training.md §4): `max_steps` counts completions scored (SFT, DPO: rows), one iteration is one
optimizer phase, a member stops at the first iteration end at or past `max_steps`, and what is evaluated never
counts. Figures are those of the start values; a member whose batch or group size mutates gets there in fewer
or more iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.spec.knobs import GroupKnobs, TextKnobs
from arena_gitops.spec.manifest import Manifest

_CAPPED = "this platform ends every run at {cap:,} steps (limits.max_steps)"


@dataclass(frozen=True, slots=True)
class Units:
    """What the whole run amounts to."""

    members: int
    per_iteration: int
    """completions (or rows) of one member in one iteration"""
    iterations: int
    """of each member"""
    generations: int
    """evolutions of each member; 0 when nothing evolves"""
    total: int
    """completions (or rows) of all members together"""
    evaluated: int
    """rows evaluated by all members together, and base and best on the test split; beside `total`"""
    noun: str


def units_of(manifest: Manifest, cap: int | None = None) -> Units | None:
    """Count a manifest, up to the platform's own limit.

    None for an algorithm without a room, and where `num_epochs` replaces `max_steps`: how many rows are left for
    training is known when they have been read.
    """
    if manifest.training.num_epochs is not None:
        return None
    match manifest.algorithm:
        case GroupKnobs() as knobs:
            per_iteration, noun = knobs.batch_size * knobs.group_size, "completions"
        case TextKnobs() as knobs:
            per_iteration, noun = knobs.batch_size, "rows"
        case _:
            return None
    training = manifest.training
    steps = training.max_steps if cap is None else min(training.max_steps, cap)
    iterations = -(-steps // per_iteration)
    evaluations = -(-iterations // training.evaluation_interval)  # the end is evaluated, due or not
    return Units(
        members=training.pop_size,
        per_iteration=per_iteration,
        iterations=iterations,
        generations=iterations // training.evo_steps if manifest.evolves else 0,
        total=training.pop_size * iterations * per_iteration,
        evaluated=training.pop_size * evaluations * training.eval_rows * training.eval_loop
        + 2 * training.test_rows,
        noun=noun,
    )


def describe(spec: Mapping[str, Any], cap: int | None = None) -> tuple[str, ...]:
    """The units of a stored experiment as lines for people."""
    manifest = Manifest.from_normal(spec["manifest"])
    if manifest.training.num_epochs is not None:
        return _epochs(manifest, manifest.training.num_epochs, cap)
    units = units_of(manifest, cap)
    if units is None:
        return ()
    each = f"{_count(units.iterations, 'iteration')} of {units.per_iteration:,} {units.noun} each"
    evolved = _count(units.generations, "generation")
    whole = f"{units.total:,} {units.noun} in all, and {units.evaluated:,} to evaluate"
    training = manifest.training
    lines = [
        f"{manifest.algorithm.name}, {_count(units.members, 'member')}: {each}, {evolved}; {whole}",
        f"max_steps {training.max_steps:,} counts {units.noun} per member",
    ]
    if cap is not None and cap < training.max_steps:
        lines.append(_CAPPED.format(cap=cap))
    return tuple(lines)


def _epochs(manifest: Manifest, epochs: int, cap: int | None) -> tuple[str, ...]:
    """The units of a run whose length is that of its epochs."""
    group = manifest.algorithm.group_size if isinstance(manifest.algorithm, GroupKnobs) else 1
    each = f", {group:,} completions for each" if group > 1 else ""
    members = f"{manifest.algorithm.name}, {_count(manifest.training.pop_size, 'member')}"
    lines = [
        f"{members}: {_count(epochs, 'epoch')} over the training rows{each}",
        f"max_steps follows num_epochs; the {manifest.training.max_steps:,} of the manifest are not used",
    ]
    return tuple(lines) if cap is None else (*lines, _CAPPED.format(cap=cap))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
