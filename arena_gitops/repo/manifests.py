"""An experiment's effective manifest: the file it names, with its `set:` put on top.

Problems and remarks are placed where their value was written, in the manifest or in the `set:` line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import Any

from pydantic import BaseModel

from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.repo import documents
from arena_gitops.repo.catalog import Catalog, Entry, diagnostics
from arena_gitops.repo.document import Document
from arena_gitops.repo.files import FileProblemError
from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.manifest.dialects import canonical_path
from arena_gitops.spec.manifest.model import Manifest
from arena_gitops.spec.manifest.parse import MOST_KEPT, ManifestError, parse_manifest
from arena_gitops.spec.manifest.preview import shortened

_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Written:
    """Where a manifest file says what, by dotted path in the normal form; many experiments may share it."""

    spans: Mapping[str, Span]
    above: frozenset[str]
    """every path that is written, and everything above it"""
    defaulted: dict[Any, list[str]] = field(default_factory=dict)
    """keys of a `set:` and paths of a normal form → the paths that nobody wrote"""

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
        """Where a field, or what it is part of, was written, under any of its published names; else the manifest's top."""
        above = [field]
        while "." in above[-1]:
            above.append(above[-1].rpartition(".")[0])
        for places in (self.overridden(), self.written.spans):
            for path in above:
                if (found := places.get(f"{section}.{path}")) is not None:
                    return found
        return self.document.span((section,))

    def overridden(self) -> dict[str, Span]:
        """Dotted path in the normal form → its line in `set:`."""
        keys = self.overrides.value.get("set", {})
        return {_canonical(key): self.overrides.span(("set", key)) for key in keys}

    def defaulted(self, paths: tuple[tuple[str, ...], ...]) -> list[str]:
        """Of the normal form's paths, those that were written nowhere, neither they nor anything below them."""
        keys = tuple(self.overrides.value.get("set", {}))
        found = self.written.defaulted.get((keys, paths))
        if found is None:
            here = _with_those_above(_canonical(key) for key in keys)
            above = self.written.above
            found = [p for section in paths for p in section if p not in above and p not in here]
            self.written.defaulted[keys, paths] = found
        return found


class Normals:
    """Normal forms of sections and the paths in them, made once for all experiments that share a section."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, Any, tuple[str, ...]]] = {}
        self._paths: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._inputs: dict[tuple[int, ...], tuple[tuple[object, ...], dict[str, Any]]] = {}

    def of(self, manifest: Manifest) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
        """`Manifest.normal()`, whose parts are not to be changed, and the paths of each section, sorted by section."""
        normal: dict[str, Any] = {}
        paths: dict[str, tuple[str, ...]] = {}
        for name in type(manifest).model_fields:
            section = getattr(manifest, name)
            if section is not None:
                normal[name], paths[name] = self._section(name, section)
        return normal, tuple(paths[name] for name in sorted(paths))

    def inputs(self, inputs: JobInputs) -> dict[str, Any]:
        """What a job reads, as JSON."""
        parts = (inputs.dataset, inputs.reward, inputs.environment, inputs.base)
        key = tuple(map(id, parts))
        known = self._inputs.get(key)
        if known is not None and all(a is b for a, b in zip(known[0], parts, strict=True)):
            return known[1]
        if len(self._inputs) >= MOST_KEPT:
            self._inputs.clear()
        dumped = inputs.model_dump(mode="json")
        self._inputs[key] = parts, dumped
        return dumped

    def _section(self, name: str, section: BaseModel) -> tuple[Any, tuple[str, ...]]:
        known = self._made.get(id(section))
        if known is not None and known[0] is section:
            return known[1], known[2]
        if len(self._made) >= MOST_KEPT:
            self._made.clear()
        dumped = section.model_dump(mode="json")
        found = tuple(_leaves(dumped, f"{name}.")) if dumped else (name,)
        found = self._paths.setdefault(found, found)
        self._made[id(section)] = section, dumped, found
        return dumped, found


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
