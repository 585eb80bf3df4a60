"""What a run has measured, as a table: one line per step and member, one column per metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import JOB_EVENT
from arena_runner.server.points import WHOLE_RUN, Point, fresh, points
from arena_runner.server.refusals import RefusedError
from arena_runner.server.store.tables import EventRow

MEASURED = ("metrics", "evaluation", "evolution", "test_scores")


def of_run(session: Session, run_id: str) -> list[Point]:
    """Every figure of a run, each once, in the order in which it was reported."""
    query = select(EventRow.body).where(EventRow.run_id == run_id, EventRow.type.in_(MEASURED))
    known: dict[tuple[int, str], int] = {}
    found: list[Point] = []
    for body in session.scalars(query.order_by(EventRow.position)):
        found.extend(fresh(points(JOB_EVENT.validate_python(body)), known))
    return found


def names(found: Iterable[Point]) -> list[str]:
    """The metrics there are."""
    return sorted({point.key for point in found})


def table(found: list[Point], *, only: Iterable[str] = (), rows: int | None = None) -> str:
    """CSV, the newest `rows` lines of it; `member` is empty in lines that speak of the whole population."""
    keys = list(only) or names(found)
    wanted = set(keys)
    lines: dict[tuple[int, int], dict[str, float]] = {}
    for point in found:
        if point.key in wanted:
            lines.setdefault((point.step, point.member), {})[point.key] = point.value
    chosen = sorted(lines)[-rows:] if rows else sorted(lines)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", "member", *keys])
    for step, member in chosen:
        values = lines[step, member]
        writer.writerow([step, "" if member == WHOLE_RUN else member, *(values.get(k, "") for k in keys)])
    return out.getvalue()


def unknown_metrics(unknown: Iterable[str], known: Iterable[str]) -> RefusedError:
    """422 that says what there is."""
    there = ", ".join(known) or "none yet"
    return RefusedError(422, "unknown-metric", f"no metric {', '.join(unknown)}; there are: {there}")
