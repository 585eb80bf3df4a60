"""Specs in the shape the platform stores, their fingerprints, and where their fields were written."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from arena_gitops.errors import Span
from arena_gitops.repo.catalog import Entry
from arena_gitops.spec.digest import Fingerprint, fingerprint
from arena_gitops.spec.lifecycle import data_part, meta_part
from arena_gitops.spec.resource import Resource

Renamed = Mapping[tuple[str, ...], str]
"""Path in a document → dotted path in the stored spec, where they differ."""
_ENTRY = "(entry)"
"""What the entry file is called in fingerprints, so that moving or renaming it is no change of the reward."""


def fingerprint_of(kind: str, spec: Mapping[str, Any], parents: Iterable[Fingerprint]) -> Fingerprint:
    """Fingerprint of a stored spec. Where a reward's files lie does not count, what is in them does."""
    comparable = dict(spec)
    if kind == "reward":
        comparable = _without_place(comparable)
    if kind == "experiment" and comparable["inputs"]["reward"] is not None:
        reward = _without_place(comparable["inputs"]["reward"])
        comparable["inputs"] = {**comparable["inputs"], "reward": reward}
    return fingerprint(data_part(kind, comparable), meta_part(kind, comparable), parents)


def _without_place(reward: Mapping[str, Any]) -> dict[str, Any]:
    entry = reward["entry"]
    folder = posixpath.dirname(entry) or "."
    files = {
        _ENTRY if path == entry else posixpath.relpath(path, folder): digest
        for path, digest in reward["files"].items()
    }
    return {**reward, "files": files, "entry": _ENTRY}


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
