"""An experiment's effective manifest: the file it names, with its `set:` put on top.

Problems and remarks are placed where their value was written, in the manifest or in the `set:` line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from sys import intern
from typing import Any

from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.repo import documents
from arena_gitops.repo.catalog import Catalog, Entry, diagnostics
from arena_gitops.repo.document import Document
from arena_gitops.repo.files import FileProblemError
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.manifest.dialects import canonical_path
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.parse import ManifestError, parse_manifest
from arena_gitops.spec.manifest.preview import shortened

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Written:
    """Where a manifest file says what, by dotted path in the normal form; many experiments may share it."""

    spans: Mapping[str, Span]
    above: frozenset[str]
    """every path that is written, and everything above it"""

    @classmethod
    def of(cls, document: Document) -> Written:
        """Look through a manifest's document once."""
        spans = {_dotted(path): document.span(path) for path in document.places if path}
        return cls(spans, frozenset(_with_those_above(spans)))


@dataclass(frozen=True, slots=True)
class Effective:
    """A manifest as one experiment uses it."""

    manifest: Manifest
    document: Document
    overrides: Document
    """the experiment's document, where `set:` is"""
    written: Written
    refusals: tuple[str, ...] = ()

    def span(self, section: str, field: str) -> Span:
        """Where a field was written, under any of its published names; the manifest's own top otherwise."""
        path = f"{section}.{field}"
        found = self.overridden().get(path) or self.written.spans.get(path)
        return found or self.document.span((section,))

    def overridden(self) -> dict[str, Span]:
        """Dotted path in the normal form → its line in `set:`."""
        keys = self.overrides.value.get("set", {})
        return {_canonical(key): self.overrides.span(("set", key)) for key in keys}

    def defaulted(self, normal: Mapping[str, Any]) -> tuple[str, ...]:
        """Paths of the normal form that were written nowhere, neither they nor anything below them."""
        keys = self.overrides.value.get("set", {})
        here = _with_those_above(_canonical(key) for key in keys) if keys else set()
        above = self.written.above
        return tuple(path for path in _leaves(normal) if path not in above and path not in here)


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
    written = catalog.written.get(path)
    if written is None:
        written = catalog.written[path] = Written.of(document)
    found = Effective(parsed.manifest, document, entry.document, written, words)
    most = catalog.limit()
    return found if most is None else _in_preview(catalog, found, most)


def _in_preview(catalog: Catalog, found: Effective, most: int) -> Effective:
    short = shortened(found.manifest, most)
    if short == found.manifest:
        return found
    epochs = found.manifest.training.num_epochs
    asked = f"num_epochs {epochs}" if epochs is not None else f"{found.manifest.training.max_steps:,} steps"
    message = f"a preview trains {most:,} steps at most, not {asked} (arena.yaml: preview.max_steps)"
    span = found.span("training", "num_epochs" if epochs is not None else "max_steps")
    catalog.problems.append(Diagnostic(message, "preview-cut-short", span, severity=Severity.NOTE))
    return replace(found, manifest=short)


def _leaves(value: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key, inner in sorted(value.items()):
        if inner and isinstance(inner, dict):
            yield from _leaves(inner, f"{at}{key}.")
        else:
            yield intern(f"{at}{key}")


def _dotted(path: tuple[str | int, ...]) -> str:
    return _canonical(".".join(map(str, path)))


@lru_cache(maxsize=1 << 12)
def _canonical(written: str) -> str:
    return ".".join(map(str, canonical_path(written)))


def _with_those_above(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        here = path
        while here and here not in found:
            found.add(here)
            here = here.rpartition(".")[0]
    return found


def _copy(value: Any) -> Any:
    """A deep copy that shares nothing, not even what an alias shares: `set:` changes one place only."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value
