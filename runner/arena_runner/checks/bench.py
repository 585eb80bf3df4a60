"""Scoring texts for tasks, and what forms are paid on average."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from arena_runner.checks.mutants import Task, dressed
from arena_runner.sandbox import RewardError, Score, ScoreRow

TOLERANCE = 1e-6
KEPT = 100
"""scores that are kept"""

ScoreEach = Callable[[Sequence[ScoreRow]], Sequence[Score | RewardError]]
Trace = Callable[[Sequence[ScoreRow]], frozenset[int]]
"""rows → the lines of the reward that run on them"""


@dataclass(slots=True)
class Bench:
    """Scores texts and keeps what went wrong; a fault counts as NaN, which wins no comparison."""

    score_each: ScoreEach
    trace: Trace | None = None
    faults: list[tuple[str, RewardError]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    """everything it has scored"""
    kept: dict[ScoreRow, Score] = field(default_factory=dict)
    """some of it, to be asked once more"""

    def score(self, task: Task, texts: Mapping[str, str]) -> dict[str, float]:
        """The total of each text as a completion for the task."""
        if self.hung:
            return dict.fromkeys(texts, math.nan)  # each more could cost a whole time limit
        rows = [ScoreRow(task.question, task.answer, text) for text in texts.values()]
        totals: dict[str, float] = {}
        for name, row, outcome in zip(texts, rows, self.score_each(rows), strict=True):
            if isinstance(outcome, RewardError):
                self.faults.append((name, outcome))
            elif len(self.kept) < KEPT:
                self.kept[row] = outcome
            totals[name] = outcome.total if isinstance(outcome, Score) else math.nan
        self.totals += [total for total in totals.values() if not math.isnan(total)]
        return totals

    @property
    def hung(self) -> bool:
        """Whether something ran into its time limit, so that no more is asked."""
        return any(error.hung for _, error in self.faults)

    def dress(self, task: Task, forms: Mapping[str, str], *, right: bool) -> dict[str, float]:
        """The total of a right or a wrong answer in each form."""
        answer = task.answer if right else task.other
        return self.score(task, {name: dressed(form, answer) for name, form in forms.items()})


@dataclass(frozen=True, slots=True)
class Liked:
    """A form, and what a reward pays in it."""

    name: str
    form: str
    right: float
    wrong: float

    @property
    def tells(self) -> bool:
        """Whether the right answer is paid more."""
        return self.right > self.wrong + TOLERANCE


def known(value: float) -> float:
    """The value; less than anything where there is none."""
    return -math.inf if math.isnan(value) else value


def means(bench: Bench, tasks: Sequence[Task], forms: Mapping[str, str]) -> list[Liked]:
    """What each form is paid, on average: first the one paid most among those that tell right from wrong."""
    right = [bench.dress(task, forms, right=True) for task in tasks]
    wrong = [bench.dress(task, forms, right=False) for task in tasks]
    found = [
        Liked(name, form, fmean(known(r[name]) for r in right), fmean(known(w[name]) for w in wrong))
        for name, form in forms.items()
    ]
    return sorted(found, key=lambda one: (one.tells, one.right, -one.wrong), reverse=True)


def shortened(text: str) -> str:
    """A text in a message: on one line, in quotes."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:60] + "…")
