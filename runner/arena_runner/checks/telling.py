"""Does a reward tell right from wrong, and what else does it pay for? Judged in the form it pays best.

Verdicts here are warnings: a reward for style or brevity may be meant so. What raises or hangs is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from arena_runner.checks import mutants
from arena_runner.checks.mutants import Task, dressed
from arena_runner.sandbox import RewardError, Score, ScoreRow

TOLERANCE = 1e-6
TELLS = 0.95
"""share of rows on which the right answer must be paid more than a wrong one"""
HACKED = 0.9
"""of what the right answer is paid, the most that anything else may get without a remark"""
LOST = 0.25
"""of the way from wrong to right, the most that a harmless difference may cost without a remark"""
HALF = 0.5
UNBOUNDED = 10.0
"""times the pay of a right answer: beyond it, a score seems to grow with the text"""

ScoreEach = Callable[[Sequence[ScoreRow]], Sequence[Score | RewardError]]


@dataclass(frozen=True, slots=True)
class Remark:
    """One verdict about the reward's judgement."""

    name: str
    status: Literal["pass", "warn"]
    message: str


@dataclass(slots=True)
class Bench:
    """Scores texts and keeps what went wrong; a fault counts as NaN, which wins no comparison."""

    score_each: ScoreEach
    faults: list[tuple[str, RewardError]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    """everything it has scored"""

    def score(self, task: Task, texts: Mapping[str, str]) -> dict[str, float]:
        """The total of each text as a completion for the task."""
        rows = [ScoreRow(task.question, task.answer, text) for text in texts.values()]
        totals: dict[str, float] = {}
        for name, outcome in zip(texts, self.score_each(rows), strict=True):
            if isinstance(outcome, RewardError):
                self.faults.append((name, outcome))
            totals[name] = outcome.total if isinstance(outcome, Score) else math.nan
        self.totals += [total for total in totals.values() if not math.isnan(total)]
        return totals


@dataclass(frozen=True, slots=True)
class Liked:
    """The form a reward pays best, and what it pays in it."""

    name: str
    form: str
    right: float
    wrong: float


def judge(
    bench: Bench, rows: Sequence[Mapping[str, str]], forms: Mapping[str, str], *, few: int
) -> Iterator[Remark]:
    """Yield remarks; nothing at all when no two rows have different answers.

    Args:
        bench: Scores; its faults are the caller's to report.
        rows: Rows of the dataset, with `question` and `answer`.
        forms: Every form to be tried.
        few: Rows to find the form with.
    """
    found = mutants.tasks(rows)
    if not found:
        return
    liked = _liked(bench, found[:few], forms)
    yield from _tells(bench, found, liked)
    yield from _hacked(bench, found[: min(few, 2)], rows, liked)
    yield from _robust(bench, found[0], liked)
    yield from _bounded(bench, found[0], liked)


def _liked(bench: Bench, tasks: Sequence[Task], forms: Mapping[str, str]) -> Liked:
    paid: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    for task in tasks:
        right = bench.score(task, {name: dressed(form, task.answer) for name, form in forms.items()})
        wrong = bench.score(task, {name: dressed(form, task.other) for name, form in forms.items()})
        for name in forms:
            paid[name].append((_known(right[name]), _known(wrong[name])))
    means = {name: (fmean(r for r, _ in pairs), fmean(w for _, w in pairs)) for name, pairs in paid.items()}
    name = max(means, key=lambda n: (means[n][0], -means[n][1]))
    return Liked(name, forms[name], *means[name])


def _known(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _tells(bench: Bench, tasks: Sequence[Task], liked: Liked) -> Iterator[Remark]:
    told, examples = 0, []
    for task in tasks:
        pair = {"right": dressed(liked.form, task.answer), "wrong": dressed(liked.form, task.other)}
        paid = bench.score(task, pair)
        if paid["right"] > paid["wrong"] + TOLERANCE:
            told += 1
        else:
            examples.append(
                f"{_short(pair['wrong'])} scored {paid['wrong']:g} and {_short(pair['right'])} "
                f"{paid['right']:g} for {_short(task.question)}"
            )
    share = told / len(tasks)
    if share >= TELLS:
        text = f"right answers {liked.name} score {liked.right:g}, wrong ones {liked.wrong:g}"
        yield Remark("discrimination", "pass", text)
        return
    text = f"the right answer ({liked.name}) is paid more than a wrong one on {told} of {len(tasks)} rows"
    yield Remark("discrimination", "warn", f"{text}: {examples[0]}")


def _hacked(
    bench: Bench, tasks: Sequence[Task], rows: Sequence[Mapping[str, str]], liked: Liked
) -> Iterator[Remark]:
    ratios: dict[str, float] = {}
    for task in tasks:
        right = bench.score(task, {"right": dressed(liked.form, task.answer)})["right"]
        paid = bench.score(task, mutants.unearned(liked.form, task, rows))
        for key, value in paid.items():  # paid on every row: once may be chance, as with few possible answers
            ratios[key] = min(ratios.get(key, math.inf), _ratio(_known(value), right))
    name = max(ratios, key=lambda key: ratios[key], default="")
    best = ratios.get(name, -math.inf)
    if math.isfinite(best) and best < HACKED:
        yield Remark("hack", "pass", f"the best that earns nothing gets {max(best, 0):.0%} ({name})")
    elif best >= HACKED:
        share = f"{best:.0%} of what" if math.isfinite(best) else "more than"
        yield Remark("hack", "warn", f"{name} is paid {share} the right answer ({liked.name}) is paid")


def _ratio(paid: float, right: float) -> float:
    if right > TOLERANCE:
        return paid / right
    return math.inf if paid > right else -math.inf


def _robust(bench: Bench, task: Task, liked: Liked) -> Iterator[Remark]:
    variants = mutants.harmless(liked.form)
    kinds = {"": liked.form, **variants}
    right = bench.score(task, {name: dressed(form, task.answer) for name, form in kinds.items()})
    wrong = bench.score(task, {name: dressed(form, task.other) for name, form in kinds.items()})
    empty = bench.score(task, {"an empty completion": ""})["an empty completion"]
    span = right[""] - min(wrong[""], empty)
    if not span > TOLERANCE:
        return
    lost = [n for n in mutants.EQUAL if n in variants and right[n] < right[""] - LOST * span]
    gap = right[""] - wrong[""]
    if gap > TOLERANCE and any(mark in liked.form for mark in mutants.MARKS):
        told = {name: right[name] - wrong[name] >= HALF * gap for name in variants}
        lost += [long for short, long in mutants.WINDOWS if told[short] and not told[long]]
    for name in lost:
        text = f"the right answer ({liked.name}) scores {right['']:g}, and {right[name]:g} with {name}"
        yield Remark("robustness", "warn", text)
    if not lost:
        yield Remark("robustness", "pass", "line breaks, long reasoning and remarks keep the right answer")


def _bounded(bench: Bench, task: Task, liked: Liked) -> Iterator[Remark]:
    huge = dressed(liked.form, task.answer) + "\n" + "word " * 20_000
    paid = bench.score(task, {"a huge completion": huge})["a huge completion"]
    if abs(paid) > UNBOUNDED * max(1.0, abs(liked.right)):
        text = f"a huge completion scores {paid:g}, the right answer {liked.right:g}: the score has no bounds"
        yield Remark("range", "warn", text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:60] + "…")
