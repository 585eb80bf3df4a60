"""Events to metric points: which figure of which member belongs into MLflow under which name. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass

from arena_gitops.spec.job import Evaluation, Evolution, JobEvent, Metrics, TestScored

WHOLE_RUN = -1
"""Stands for the run where a member's number is expected."""

_ODD = re.compile(r"[^A-Za-z0-9_\-. /]")


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series."""

    member: int
    key: str
    step: int
    value: float
    timestamp_ms: int


def points(event: JobEvent) -> Iterator[Point]:
    """The figures an event carries; Progress repeats what Metrics say and is for people who watch."""
    when = int(event.ts * 1000)
    match event:
        case Metrics():
            member = WHOLE_RUN if event.member is None else event.member
            yield from _points(member, event.step, event.values, when)
        case Evaluation():
            values = {**event.values, "fitness": event.fitness}
            yield from _points(event.member, event.step, values, when)
        case Evolution():
            yield from _generation(event, when)
        case TestScored():
            scores = event.scores
            prefix = f"test/{scores.label}"
            values = {f"{prefix}/{key}": value for key, value in scores.mean.items()}
            values |= {f"{prefix}/{key}_stderr": value for key, value in scores.stderr.items()}
            yield from _points(WHOLE_RUN, scores.step or 0, values, when)
        case _:
            return


def fresh(found: Iterable[Point], known: MutableMapping[tuple[int, str], int]) -> list[Point]:
    """The points beyond what each series has reached already; `known` moves on with them.

    A resumed segment reports again from its resume state: what was said first stays.
    """
    new = []
    for point in found:
        series = (point.member, point.key)
        if point.step > known.get(series, -1):
            known[series] = point.step
            new.append(point)
    return new


def _generation(event: Evolution, when: int) -> Iterator[Point]:
    """The population as a whole, and each place's parent."""
    fitness = [r.fitness for r in event.records if r.fitness is not None and math.isfinite(r.fitness)]
    if fitness:
        step = max(r.step for r in event.records)
        values = {"fitness/best": max(fitness), "fitness/mean": sum(fitness) / len(fitness)}
        yield from _points(WHOLE_RUN, step, {**values, "generation": float(event.generation)}, when)
    for record in event.records:
        yield from _points(record.member, record.step, {"lineage/parent": float(record.parent)}, when)


def _points(member: int, step: int, values: dict[str, float], when: int) -> Iterator[Point]:
    for key, value in values.items():
        if math.isfinite(value):
            yield Point(member, _ODD.sub("_", key), step, value, when)
