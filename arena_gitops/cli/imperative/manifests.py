"""A manifest by itself, read with places: every problem has its line and column."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena_gitops.errors import Diagnostic, RepoError, Severity, UsageError
from arena_gitops.repo import yaml
from arena_gitops.repo.catalog import diagnostics
from arena_gitops.repo.document import Document
from arena_gitops.spec.manifest import Manifest, ManifestError, parse_manifest

STDIN = "-"


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A manifest that is right, and what is worth saying about it."""

    raw: dict[str, Any]
    """as it was written, in its own dialect"""
    manifest: Manifest
    remarks: tuple[Diagnostic, ...]


def read(path: str) -> ReadManifest:
    """Read and check a manifest; `-` is standard input. Raises RepoError with all its problems, by place."""
    name = "<stdin>" if path == STDIN else path
    document = _document(_bytes(path), name)
    try:
        parsed = parse_manifest(document.value)
    except ManifestError as error:
        raise RepoError(diagnostics(document, error.problems), where=name) from error
    notes = diagnostics(document, parsed.notes, Severity.NOTE)
    notes += diagnostics(document, parsed.refusals, Severity.WARNING)
    return ReadManifest(document.value, parsed.manifest, tuple(notes))


def _bytes(path: str) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _document(data: bytes, name: str) -> Document:
    reading = yaml.read(data, name)
    wrong = [problem for problem in reading.problems if problem.severity is Severity.ERROR]
    if wrong:
        raise RepoError(wrong, where=name)
    if len(reading.documents) != 1:
        many = reading.documents[1]
        second = Diagnostic("a manifest is one document; here is a second one", "one-document", many.span())
        raise RepoError([second], where=name)
    return reading.documents[0]
