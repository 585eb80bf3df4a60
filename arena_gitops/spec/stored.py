"""Stored experiments: what came later than the rest is kept only where somebody has said so.

So an experiment of somebody who never heard of it stays what it was, to the byte and in its fingerprint.
"""

from __future__ import annotations

from pydantic import JsonValue

from arena_gitops.spec.wire import ExperimentSpec

_LATER = ("distinct", "trainer", "region", "priority", "reuse", "notes", "notify")


def stored(spec: ExperimentSpec) -> dict[str, JsonValue]:
    """The spec as a platform keeps it."""
    usual = {name for name in _LATER if getattr(spec, name) == _default(name)}
    return {name: value for name, value in spec.model_dump(mode="json").items() if name not in usual}


def _default(name: str) -> object:
    return ExperimentSpec.model_fields[name].get_default(call_default_factory=True)
