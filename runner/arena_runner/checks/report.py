"""The verdicts of one experiment as a document for people and one for programs, for those who were not there."""

from __future__ import annotations

from collections.abc import Sequence

from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import CheckRequest, CheckResult, CheckSummary

MARK = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


class Report(Frozen):
    """What was checked, and what was found."""

    address: str
    results: tuple[CheckResult, ...]
    summary: CheckSummary


def report(request: CheckRequest, results: Sequence[CheckResult]) -> Report:
    """All verdicts about one experiment."""
    return Report(address=request.address, results=tuple(results), summary=summarise(results))


def summarise(results: Sequence[CheckResult]) -> CheckSummary:
    """Count the verdicts."""
    counts = {status: sum(r.status == status for r in results) for status in ("pass", "warn", "fail")}
    return CheckSummary(passed=counts["pass"], warned=counts["warn"], failed=counts["fail"])


def line(result: CheckResult) -> str:
    """One verdict for people."""
    return f"{MARK[result.status]}  {result.address}  {result.name}: {_place(result)}{result.message}"


def markdown(found: Report) -> str:
    """A table of all verdicts, the worst first, and what the reward paid for each sample."""
    order = {"fail": 0, "warn": 1, "pass": 2}
    worst_first = sorted(found.results, key=lambda result: order[result.status])
    rows = [
        f"| {MARK[r.status].strip()} | {_cell(r.address)} | {_cell(r.name)} | {_cell(_place(r) + r.message)} |"
        for r in worst_first
    ]
    counts = found.summary
    total = f"{counts.passed} passed, {counts.warned} warned, {counts.failed} failed."
    head = [f"# Checks of {_cell(found.address)}", "", total, "", "| | what | check | |", "|--|--|--|--|"]
    return "\n".join([*head, *rows, *_samples(found), ""])


def _samples(found: Report) -> list[str]:
    scores = [score for result in found.results for score in result.scores]
    rows = [
        f"| {_cell(s.sample)} | {'' if s.expect is None else f'{s.expect:g}'} | "
        f"{_cell(s.error) if s.total is None else f'{s.total:g}'} |"
        for s in scores
    ]
    return ["", "| sample | expected | paid |", "|--|--|--|", *rows] if rows else []


def _place(result: CheckResult) -> str:
    return f"{result.file}:{result.line or 1}: " if result.file else ""


def _cell(text: str) -> str:
    """Strangers' text within a table."""
    return (
        " ".join(text.split())
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("`", "\\`")
    )
