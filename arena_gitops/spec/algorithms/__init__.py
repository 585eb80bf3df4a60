"""The algorithms that have a room: one file here for the knobs, one of the same name in the runner.

The files are found by looking; a parity test demands both halves.
"""

from __future__ import annotations

from arena_gitops import discover
from arena_gitops.spec.knobs import Knobs

_FOUND = [discover.find(__name__, name, Knobs) for name in discover.names(__name__)]

_KNOBS: dict[str, type[Knobs]] = {knobs.ALGORITHM: knobs for knobs in _FOUND}

ALGORITHMS: frozenset[str] = frozenset(_KNOBS)
"""Canonical names of the algorithms that can be trained."""


def knobs_for(name: str) -> type[Knobs] | None:
    """The knobs of a canonical algorithm name; None when it has no room."""
    return _KNOBS.get(name)
