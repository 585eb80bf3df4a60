"""The memory a plan would have named as the most for this run, to be logged beside what was taken."""

from __future__ import annotations

from arena_gitops.spec.manifest import Manifest
from arena_gitops.spec.memory import GIB, RUNTIME_GIB, facts_of, load_of, need
from arena_runner.learner import Learner


def expected_gib(learner: Learner, manifest: Manifest) -> float | None:
    """By the closed form of `spec.memory`; None for a base whose shape it does not cover."""
    base = learner.base
    facts = facts_of(base.ref, base.model.config.get_text_config().to_dict())
    load = load_of(manifest.normal(), chained=learner.population.has_reference)
    device = base.device.type
    if facts is None or load is None or device not in RUNTIME_GIB:
        return None
    found = need(
        facts,
        load,
        device=device,
        dtype=base.dtype.itemsize,
        prompt_tokens=max(load.context - load.new_tokens, 1),
    )
    return found.peak / GIB + RUNTIME_GIB[device]
