"""An experiment's effective manifest: the file it names, with its `set:` put on top.

Problems and remarks are placed where their value was written, in the manifest or in the `set:` line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.errors import Severity, Span
from arena_gitops.repo import documents
from arena_gitops.repo.catalog import Catalog, Entry, diagnostics
from arena_gitops.repo.document import Document
from arena_gitops.repo.files import FileProblemError
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.manifest.dialects import canonical_path
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.parse import ManifestError, parse_manifest


@dataclass(frozen=True, slots=True)
class Effective:
    """A manifest as one experiment uses it."""

    manifest: Manifest
    document: Document
    overrides: Document
    """the experiment's document, where `set:` is"""
    refusals: tuple[str, ...] = ()

    def span(self, section: str, field: str) -> Span:
        """Where a field was written, under any of its published names; the manifest's own top otherwise."""
        found = self.spans().get(f"{section}.{field}")
        return found or self.document.span((section,))

    def spans(self) -> dict[str, Span]:
        """Dotted path in the normal form → where it was written."""
        found: dict[str, Span] = {}
        for path in self.document.places:
            if path:
                found[_dotted(path)] = self.document.span(path)
        for key in self.overrides.value.get("set", {}):
            found[".".join(map(str, canonical_path(key)))] = self.overrides.span(("set", key))
        return found

    def defaulted(self) -> tuple[str, ...]:
        """Paths of the normal form that were written nowhere, neither they nor anything below them."""
        written: set[str] = set()
        for path in self.spans():
            parts = path.split(".")
            written |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        return tuple(path for path in _leaves(self.manifest.normal()) if path not in written)


def effective(catalog: Catalog, entry: Entry, resource: Experiment) -> Effective | None:
    """Read and check an experiment's manifest; None when there is a problem, which the catalog then has."""
    try:
        path = catalog.files.find(resource.manifest, entry.file)
    except FileProblemError as problem:
        catalog.file_problem(entry.document, ("manifest",), problem)
        return None
    document = documents.open_plain(catalog, path)
    if document is None:
        return None
    if not isinstance(document.value, dict):
        catalog.report(document, (), "a manifest is a mapping of sections", "not-a-mapping")
        return None
    try:
        parsed = parse_manifest(_copy(document.value), overrides=_copy(resource.overrides))
    except ManifestError as error:
        catalog.problems.extend(diagnostics(document, error.problems, overrides=entry.document))
        return None
    notes = diagnostics(document, parsed.notes, Severity.NOTE, entry.document)
    refused = diagnostics(document, parsed.refusals, Severity.WARNING, entry.document)
    catalog.problems.extend([*notes, *refused])
    words = tuple(
        f"{problem.message} ({problem.hint})" if problem.hint else problem.message for problem in refused
    )
    return Effective(parsed.manifest, document, entry.document, words)


def _leaves(value: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key, inner in sorted(value.items()):
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, f"{at}{key}.")
        else:
            yield f"{at}{key}"


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, canonical_path(".".join(map(str, path)))))


def _copy(value: Any) -> Any:
    """A deep copy that shares nothing, not even what an alias shares: `set:` changes one place only."""
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value
