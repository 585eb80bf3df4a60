"""The memory a run needs, by the closed form the plan uses: logged beside what was taken, and asked before it is."""

from __future__ import annotations

from arena_gitops.spec.manifest import Manifest
from arena_gitops.spec.memory import GIB, RUNTIME_GIB, Need, facts_of, load_of, need
from arena_runner.learner import Learner


def expected_gib(learner: Learner, manifest: Manifest) -> float | None:
    """At the fullest moment, the process itself included; None for a base whose shape is not covered."""
    found = needed(learner, manifest, learner.tokens_per_backward)
    return None if found is None else found.peak / GIB + RUNTIME_GIB[learner.base.device.type]


def needed(learner: Learner, manifest: Manifest, tokens_per_backward: int) -> Need | None:
    """Bytes at the longest prompts and completions the manifest allows, with packs of so many tokens."""
    base = learner.base
    facts = facts_of(base.ref, base.model.config.get_text_config().to_dict())
    load = load_of(manifest.normal(), chained=learner.population.has_reference)
    device = base.device.type
    if facts is None or load is None or device not in RUNTIME_GIB:
        return None
    return need(
        facts,
        load,
        device=device,
        dtype=base.dtype.itemsize,
        prompt_tokens=max(load.context - load.new_tokens, 1),
        tokens_per_backward=tokens_per_backward,
    )
