"""`lifecycle.on_change`: fields whose change trains a new version, although their class alone would ask for less.

The values of these fields are kept in the stored spec as `distinct`, which is part of what is trained: two runs that
differ in one of them are two runs, and going back to an earlier value finds the earlier run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

DISTINCT = "distinct"
"""Of a stored experiment: path as it is written → value."""
OWN = ("tier", "num_nodes", "priority", "region", "budget.max_runtime", "budget.max_credits")
"""Fields of an experiment itself; every other path is one of its manifest."""
_STORED = {"budget.max_runtime": "budget.max_runtime_s"}


def stored_path(path: str) -> str:
    """Where the value of a written path is in a stored spec."""
    return _STORED.get(path, path) if path in OWN else f"manifest.{path}"


def distinct_of(spec: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values at these paths; raises KeyError for a path that the manifest does not have."""
    return {path: _value(spec, path) for path in sorted(paths)}


def known_paths(spec: Mapping[str, Any]) -> list[str]:
    """Every path that can be named."""
    return [*OWN, *_leaves(spec["manifest"])]


def _value(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in stored_path(path).split("."):
        if not isinstance(value, Mapping) or (key not in value and path not in OWN):
            raise KeyError(path)
        value = value.get(key)
    return value


def _leaves(tree: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}"
