"""Verdicts of checks for people: a line each, or a table for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arena_gitops.report.untrusted import clipped, escaped
from arena_gitops.spec.wire import CheckResult, CheckSummary

MARKS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}
LONGEST = 500


def line(result: CheckResult) -> str:
    """One verdict."""
    return f"{MARKS[result.status]}  {result.address}  {result.name}: {_place(result)}{result.message}"


def summary(counts: CheckSummary) -> str:
    """The last line."""
    return f"Checks: {counts.passed} passed, {counts.warned} warned, {counts.failed} failed."


def markdown(results: Sequence[CheckResult], counts: CheckSummary) -> str:
    """What did not pass, as a table; how many did, as a line."""
    rows = [_row(result) for result in _worst_first(results)]
    table = ["| | what | check | |", "|--|--|--|--|", *rows, ""] if rows else []
    return "\n".join([*table, summary(counts)]) + "\n"


def _worst_first(results: Iterable[CheckResult]) -> list[CheckResult]:
    told = [result for result in results if result.status != "pass"]
    return sorted(told, key=lambda result: result.status != "fail")


def _row(result: CheckResult) -> str:
    message = escaped(clipped(" ".join(f"{_place(result)}{result.message}".split()), LONGEST))
    return (
        f"| {MARKS[result.status].strip()} | {escaped(result.address)} | {escaped(result.name)} | {message} |"
    )


def _place(result: CheckResult) -> str:
    return f"{result.file}:{result.line or 1}: " if result.file else ""
