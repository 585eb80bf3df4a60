"""Everything the repository's documents declare, by address, before anything is resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.errors import Diagnostic, InvalidDocumentError, Problem, Severity, Span
from arena_gitops.repo.document import Document, Path
from arena_gitops.repo.files import FileProblemError, Files
from arena_gitops.spec.alike import Alike
from arena_gitops.spec.references import Referring
from arena_gitops.spec.resource import Address
from arena_gitops.spec.stack import Imported, Stack


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource and the document it was written in."""

    address: Address
    resource: Referring
    document: Document

    @property
    def file(self) -> str:
        """The file that declares it; its paths are relative to that file's folder."""
        return self.document.file


@dataclass(slots=True)
class Catalog:
    """What a repository declares, and what has been found wrong with it so far."""

    files: Files
    most_steps: int | None = None
    """in a preview: what its runs may be asked for at most, beside what `arena.yaml` says"""
    preview: bool = False
    stack: Stack | None = None
    head: Document | None = None
    """the document of the stack"""
    entries: dict[Address, Entry] = field(default_factory=dict)
    broken: set[Address] = field(default_factory=set)
    """declared, but not readable: what refers to them is not told that they do not exist"""
    plain: dict[str, Document] = field(default_factory=dict)
    """file → its document without `kind`"""
    written: dict[str, Any] = field(default_factory=dict)
    """manifest file → what it says where (`manifests.Written`)"""
    alike: Alike = field(default_factory=Alike)
    """parts of stored experiments"""
    normals: Any = None
    """normal forms of manifests' sections (`manifests.Normals`)"""
    unreadable: set[str] = field(default_factory=set)
    """files whose problems have been reported already"""
    referred: set[str] = field(default_factory=set)
    """files of `plain` that some resource names"""
    imports: list[tuple[Document, tuple[Imported, ...]]] = field(default_factory=list)
    """of documents that hold nothing else"""
    problems: list[Diagnostic] = field(default_factory=list)

    def limit(self) -> int | None:
        """What a run of this namespace may be asked for at most; None outside of previews."""
        if not self.preview or self.stack is None:
            return None
        own = self.stack.preview.max_steps
        return own if self.most_steps is None else min(own, self.most_steps)

    def names(self, kind: str) -> list[str]:
        """Names of every resource of a kind."""
        return sorted(address.name for address in self.entries if address.kind == kind)

    def of(self, kind: str) -> list[Entry]:
        """Every resource of a kind, by name."""
        return [self.entries[Address(kind, name)] for name in self.names(kind)]

    def report(self, document: Document, path: Path, message: str, code: str, hint: str = "") -> None:
        """Add an error at the place of a value."""
        self.problems.append(Diagnostic(message, code, document.span(path), hint))

    def remark(self, span: Span, message: str, code: str, hint: str = "") -> None:
        """Add a note."""
        self.problems.append(Diagnostic(message, code, span, hint, Severity.NOTE))

    def file_problem(self, document: Document, path: Path, problem: FileProblemError) -> None:
        """Add an error for a path in a document that leads nowhere."""
        self.report(document, path, problem.message, problem.code, problem.hint)

    def invalid(self, document: Document, error: InvalidDocumentError) -> None:
        """Add every problem of a document at its place."""
        self.problems.extend(diagnostics(document, error.problems))


def diagnostics(
    document: Document,
    problems: Iterable[Problem],
    severity: Severity = Severity.ERROR,
    overrides: Document | None = None,
) -> list[Diagnostic]:
    """Problems of a document as diagnostics; those of an experiment's `set:` are placed in `overrides`."""
    return [_diagnostic(document, problem, severity, overrides) for problem in problems]


def _diagnostic(
    document: Document, problem: Problem, severity: Severity, overrides: Document | None
) -> Diagnostic:
    path = problem.path
    if problem.override is not None and overrides is not None:
        document, path = overrides, ("set", problem.override)
    known_key = problem.code in {"unknown-key", "written-twice"}
    span = document.key_span(path) if known_key else document.span(path)
    hint = problem.hint
    if problem.message.startswith("expected text, got") and path in document.texts:
        hint = f'YAML does not read {document.texts[path]} as text; quote it: "{document.texts[path]}".'
    return Diagnostic(problem.message, problem.code, span, hint[:1].upper() + hint[1:], severity)
