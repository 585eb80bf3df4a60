"""Lines that a GitHub runner reads on stdout: annotations beside the code, and a lock around foreign text.

A line that begins with `::` is a command to the runner, whoever wrote it. So everything that quotes a
repository is printed between `::stop-commands::TOKEN` and `::TOKEN::`, with a token nobody can guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from arena_gitops.errors import Diagnostic, Severity
from arena_gitops.plan.model import Action, Change, CheckStatus, Plan, Range
from arena_gitops.report import words
from arena_gitops.report.untrusted import clipped

Level = Literal["error", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("error", "warning", "notice")
MOST_PER_LEVEL = 10
"""A runner shows ten of each level per step, and drops the rest without a word."""
LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark beside a line of the repository."""

    level: Level
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def render(self) -> str:
        """The workflow command."""
        places = {"file": self.file, "line": self.line, "col": self.column, "title": self.title}
        properties = ",".join(f"{key}={_property(str(v))}" for key, v in places.items() if v is not None)
        return f"::{self.level} {properties}::{_data(clipped(self.message, LONGEST))}"


def of_plan(plan: Plan) -> Iterator[Annotation]:
    """What a reviewer should see beside the code."""
    for check in plan.checks:
        if check.status is not CheckStatus.PASS:
            level: Level = "error" if check.status is CheckStatus.FAIL else "warning"
            yield Annotation(level, check.name, check.message)
    for change in plan.changes:
        if (found := _of_change(change)) is not None:
            yield found
    for remark in plan.diagnostics:
        level = "warning" if remark.severity == Severity.WARNING else "notice"
        yield _at(level, remark.code, _with_hint(remark.message, remark.hint), remark.range)


def of_problems(problems: Iterable[Diagnostic]) -> Iterator[Annotation]:
    """Everything that is wrong with a repository."""
    names: dict[Severity, Level] = {
        Severity.ERROR: "error",
        Severity.WARNING: "warning",
        Severity.NOTE: "notice",
    }
    for problem in problems:
        span = problem.span
        place = Range(filename=span.file, line=span.line, column=span.column) if span else None
        yield _at(names[problem.severity], problem.code, _with_hint(problem.message, problem.hint), place)


def lines(annotations: Iterable[Annotation]) -> list[str]:
    """The commands a runner will show: errors first, ten of each level, the tenth says how many are missing."""
    found = list(annotations)
    shown: list[str] = []
    for level in LEVELS:
        these = [annotation for annotation in found if annotation.level == level]
        kept = these if len(these) <= MOST_PER_LEVEL else these[: MOST_PER_LEVEL - 1]
        shown += [annotation.render() for annotation in kept]
        if len(kept) < len(these):
            rest = f"+{len(these) - len(kept)} more in the job summary"
            shown.append(Annotation(level, "arena", rest).render())
    return shown


def stop(token: str) -> str:
    """From here on the runner prints and does not obey."""
    return f"::stop-commands::{token}"


def resume(token: str) -> str:
    """From here on it obeys again."""
    return f"::{token}::"


def _of_change(change: Change) -> Annotation | None:
    message = f"{change.address}: {words.verb(change)}" + (f", {change.message}" if change.message else "")
    if change.action is Action.BLOCKED:
        return _at("error", "blocked", message, change.range)
    if change.interrupts and change.action.acts:
        return _at("warning", "stops a running run", message, change.range)
    if change.action is Action.DESTROY:
        return _at("warning", f"{words.verb(change)}s", message, change.range)
    if change.action.spends and change.cost is not None:
        cost = words.cost_line(change)
        return _at("notice", "trains", f"{message}; cost {cost}" if cost else message, change.range)
    return None


def _at(level: Level, title: str, message: str, place: Range | None) -> Annotation:
    if place is None:
        return Annotation(level, title, message)
    return Annotation(level, title, message, place.filename, place.line, place.column)


def _with_hint(message: str, hint: str) -> str:
    return f"{message} ({hint})" if hint else message


def _data(raw: str) -> str:
    return raw.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(raw: str) -> str:
    return _data(raw).replace(":", "%3A").replace(",", "%2C")
