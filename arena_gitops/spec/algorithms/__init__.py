"""The algorithms that have a room: one file here for the knobs, one of the same name in the runner.

The files are found by looking; a parity test demands both halves.
"""

from __future__ import annotations

import importlib
import pkgutil

from arena_gitops.spec.knobs import Knobs


def _knobs_of(module_name: str) -> type[Knobs]:
    """The one class of a room's file that is defined there."""
    module = importlib.import_module(f"{__name__}.{module_name}")
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Knobs) and value.__module__ == module.__name__
    )
    return found


_KNOBS: dict[str, type[Knobs]] = {
    knobs.ALGORITHM: knobs for knobs in (_knobs_of(info.name) for info in pkgutil.iter_modules(__path__))
}

ALGORITHMS: frozenset[str] = frozenset(_KNOBS)
"""Canonical names of the algorithms that can be trained."""


def knobs_for(name: str) -> type[Knobs] | None:
    """The knobs of a canonical algorithm name; None when it has no room."""
    return _KNOBS.get(name)
