"""A document: plain data, and where each part of it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.errors import Diagnostic, Span

Path = tuple[str | int, ...]
"""Keys and list indexes from a document's top to a value."""
Place = tuple[int, int]
"""1-based line and column."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: plain data, and where each part of it was written."""

    file: str
    value: Any
    start: Place
    places: Mapping[Path, Place]
    """value → where it starts"""
    keys: Mapping[Path, Place]
    """value → where its key starts"""
    texts: Mapping[Path, str]
    """value that is not text → how it was written (`1_000`, `2.5e05`)"""

    def span(self, path: Path = ()) -> Span:
        """Place of a value, or of the nearest thing around it that was written."""
        return self._find(self.places, path)

    def key_span(self, path: Path) -> Span:
        """Place of a value's key, or of the value itself in a list."""
        place = self.keys.get(path)
        return Span(self.file, *place) if place else self.span(path)

    def _find(self, places: Mapping[Path, Place], path: Path) -> Span:
        while path and path not in places:
            path = path[:-1]
        return Span(self.file, *places.get(path, self.start))


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file held, and what was wrong with it."""

    documents: tuple[Document, ...]
    problems: tuple[Diagnostic, ...]
