"""Specs in the shape the platform stores, and where their fields were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from arena_gitops.errors import Span
from arena_gitops.repo.catalog import Entry
from arena_gitops.repo.document import Path, Place
from arena_gitops.spec.resource import Frozen, Lifecycle, Resource

_OPEN: dict[str, Any] = {"protect": False}
_PROTECTED: dict[str, Any] = {"protect": True}
Renamed = Mapping[tuple[str, ...], str]
"""Path in a document → dotted path in the stored spec, where they differ."""


class Spans(Mapping[str, Span]):
    """Places that are looked up only for what has changed, and made then."""

    def __init__(self, make: Callable[[], Mapping[str, Span]]) -> None:
        self._make = make
        self._made: Mapping[str, Span] | None = None

    def __getitem__(self, path: str) -> Span:
        """The place of a dotted path."""
        return self._all()[path]

    def __iter__(self) -> Iterator[str]:
        """Every path."""
        return iter(self._all())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all())

    def _all(self) -> Mapping[str, Span]:
        if self._made is None:
            self._made = self._make()
        return self._made


def envelope(resource: Resource) -> dict[str, Any]:
    """What every kind stores beside its own fields."""
    return {
        "description": resource.description,
        "labels": dict(resource.labels),
        "owner": resource.owner,
        "lifecycle": _lifecycle(resource.lifecycle),
    }


def _lifecycle(lifecycle: Lifecycle) -> dict[str, Any]:
    """Protection always, anything else where it was written."""
    if lifecycle.model_fields_set <= {"protect"}:
        return _PROTECTED if lifecycle.protect else _OPEN
    return {"protect": False} | lifecycle.model_dump(mode="json", exclude_defaults=True)


@lru_cache(maxsize=1 << 10)
def dumped(settings: Frozen) -> dict[str, Any]:
    """A few settings as JSON, one mapping for equal ones; not to be changed."""
    return settings.model_dump(mode="json")


def spans_of(entry: Entry, renamed: Renamed) -> Spans:
    """Dotted path in the stored spec → where it was written; a list is one value."""
    return Spans(partial(_spans, entry.file, entry.document.places, renamed))


def _spans(file: str, places: Mapping[Path, Place], renamed: Renamed) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for path, place in places.items():
        if not path or path[0] == "set":
            continue
        for length in range(min(len(path), 2), 0, -1):
            if name := renamed.get(tuple(map(str, path[:length]))):
                found[".".join((name, *map(str, path[length:])))] = Span(file, *place)
                break
        else:
            found[".".join(map(str, path))] = Span(file, *place)
    return found
