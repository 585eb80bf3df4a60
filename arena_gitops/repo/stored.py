"""Specs in the shape the platform stores, and where their fields were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena_gitops.errors import Span
from arena_gitops.repo.catalog import Entry
from arena_gitops.spec.resource import Resource

Renamed = Mapping[tuple[str, ...], str]
"""Path in a document → dotted path in the stored spec, where they differ."""


def envelope(resource: Resource) -> dict[str, Any]:
    """What every kind stores beside its own fields."""
    return {
        "description": resource.description,
        "labels": dict(resource.labels),
        "owner": resource.owner,
        "lifecycle": resource.lifecycle.model_dump(mode="json"),
    }


def spans_of(entry: Entry, renamed: Renamed) -> dict[str, Span]:
    """Dotted path in the stored spec → where it was written; a list is one value."""
    found: dict[str, Span] = {}
    for path in entry.document.places:
        if not path or path[0] == "set":
            continue
        for length in range(min(len(path), 2), 0, -1):
            if name := renamed.get(tuple(map(str, path[:length]))):
                found[".".join((name, *map(str, path[length:])))] = entry.document.span(path)
                break
        else:
            found[".".join(map(str, path))] = entry.document.span(path)
    return found
