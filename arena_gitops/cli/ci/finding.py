"""What a CI plan found, as one document: a plan, or the repository's problems.

It travels between jobs as an artifact. One that comes from a fork's run is a stranger's text: its size is
limited, it must fit this model, and a comment made of it approves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import ValidationError

from arena_gitops.errors import Diagnostic, Severity, Span, UsageError
from arena_gitops.plan.model import Plan, PlanDiagnostic, Range
from arena_gitops.report import commands, github, words
from arena_gitops.report.github import Place
from arena_gitops.spec.resource import Address, Frozen

MOST_BYTES = 8 * 1024 * 1024

Found = TypeVar("Found", bound="Finding")


class Finding(Frozen):
    """The document. Field names are published."""

    format_version: Literal["1.0"] = "1.0"
    kind: Literal["arena.ci"] = "arena.ci"
    target: str
    root: str = ""
    """of the stack within the git repository, for annotations"""
    head: str
    base: str = ""
    run_url: str = ""
    plan: Plan | None = None
    problems: tuple[PlanDiagnostic, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a document that anybody may have written."""
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(
                f"{path} is larger than {MOST_BYTES} bytes; that is no document of `arena ci plan`"
            )
        try:
            return _sound(cls.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"{path} is no document of `arena ci plan` ({where}: {first['msg']})") from error

    @property
    def place(self) -> Place:
        """Where it was made."""
        return Place(self.target, self.root, self.head, self.base, self.run_url)

    def comment(self, *, approves: bool = True) -> str:
        """The body of the pull request's comment."""
        if self.plan is not None:
            return github.comment(self.plan, self.place, approves=approves)
        return github.refused(self.diagnostics(), self.place)

    def summary(self) -> str:
        """The text of the job's page."""
        if self.plan is not None:
            return github.summary(self.plan, self.place)
        return github.unplanned(self.diagnostics(), self.place)

    def annotations(self) -> list[str]:
        """Commands for the runner; places are relative to the git repository."""
        found: Iterable[commands.Annotation]
        found = commands.of_plan(self.plan) if self.plan else commands.of_problems(self.diagnostics())
        return commands.lines(self._from_the_top(found))

    def diagnostics(self) -> list[Diagnostic]:
        """The problems as the rest of the program knows them."""
        return [
            Diagnostic(
                problem.message,
                problem.code,
                Span(problem.range.filename, problem.range.line, problem.range.column)
                if problem.range
                else None,
                problem.hint,
                Severity(problem.severity) if problem.severity in set(Severity) else Severity.ERROR,
            )
            for problem in self.problems
        ]

    def _from_the_top(self, annotations: Iterable[commands.Annotation]) -> Iterator[commands.Annotation]:
        for annotation in annotations:
            named = annotation.file and self.root
            yield replace(annotation, file=f"{self.root}/{annotation.file}") if named else annotation


def _sound(finding: Found) -> Found:
    """Views rely on more than types: every count is there, and an address is one."""
    plan = finding.plan
    try:
        if plan is not None:
            words.summary_line(plan)
            for change in plan.changes:
                Address.parse(change.address)
    except (KeyError, ValueError) as error:
        raise UsageError(f"the plan in it was not made by this version: {error}") from error
    return finding


def problem(diagnostic: Diagnostic) -> PlanDiagnostic:
    """A diagnostic for the document."""
    span = diagnostic.span
    return PlanDiagnostic(
        severity=str(diagnostic.severity),
        code=diagnostic.code,
        message=diagnostic.message,
        hint=diagnostic.hint,
        range=Range(filename=span.file, line=span.line, column=span.column) if span else None,
    )
