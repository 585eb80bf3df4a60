"""Does a reward tell right from wrong, and what else does it pay for? Judged in the form it pays best.

Verdicts here are warnings: a reward for style or brevity may be meant so. What raises or hangs is a fault. A warning
needs evidence that speaks for a fault and against the innocent reading: a wrong answer must be paid in two ways, a
mutant on every row, a loss must depend on place rather than on length, and what could not be judged is said to be so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from arena_runner.checks import mutants
from arena_runner.checks.bench import TOLERANCE, Bench, Liked, known, means, shortened
from arena_runner.checks.mutants import Task, dressed
from arena_runner.checks.reading import UNREAD, Facts
from arena_runner.checks.search import searched
from arena_runner.sandbox import ScoreRow

TELLS = 0.95
"""share of rows on which the right answer must be paid more than a wrong one"""
HACKED = 0.9
"""of what the right answer is paid, the most that anything else may get without a remark"""
LOST = 0.25
"""of the way from wrong to right, the most that a harmless difference may cost without a remark"""
HALF = 0.5
WRONG = (("wrong", "another"), ("nonsense", "nothing"))
"""pairs of which a fault pays both"""
UNBOUNDED = 10.0
"""times the pay of a right answer: beyond it, a score seems to grow with the text"""
NOT_JUDGED = (
    "not judged: no form was found in which a right answer is paid more; a case with one would show it"
)
MORE = 3
"""other forms in which a row may be told"""
ROWS = 4
"""rows that a mutant must be paid on"""


@dataclass(frozen=True, slots=True)
class Remark:
    """One verdict about the reward's judgement."""

    name: str
    status: Literal["pass", "warn"]
    message: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known about a reward and its use, besides what it pays."""

    facts: Facts = UNREAD
    prompt: str = ""
    """the experiment's prompt template, empty when there is none"""
    tokens: int = 20_000
    """the longest completion that is planned"""


PLAIN = Setting()
"""a reward that nothing is known about"""


def judge(
    bench: Bench,
    rows: Sequence[Mapping[str, str]],
    forms: Mapping[str, str],
    *,
    few: int,
    setting: Setting = PLAIN,
) -> Iterator[Remark]:
    """Yield remarks; nothing at all when no two rows have different answers.

    Args:
        bench: Scores; its faults are the caller's to report.
        rows: Rows of the dataset, with `question` and `answer`.
        forms: Every form to be tried.
        few: Rows to find the form with; with one, calls are dear, and no other form is looked for.
        setting: What its source and its experiment say.
    """
    found = mutants.tasks(rows)
    if not found:
        return
    tried = means(bench, found[:few], forms)
    liked = tried[0]
    if mark := _in_the_wrong_text(rows, setting.facts):
        text = f"it looks for {mark!r} in the question, where no row has it; the answers have it"
        yield Remark("discrimination", "warn", text)
    if not setting.facts.reads_answer:
        yield from _styled(bench, found[0], liked, setting)
        return
    if not liked.tells and few > 1:
        liked = searched(bench, found[:few], tried, setting.facts.marks) or liked
    if not liked.tells and _innocent(bench, found[0], tried, forms, setting.facts):
        yield Remark("discrimination", "pass", NOT_JUDGED)
        return
    yield from _tells(bench, found, liked, [one.form for one in tried if one.tells])
    yield from _hacked(bench, found[:ROWS], rows, liked)
    shown = _with_thoughts(tried, liked) if setting.facts.dot_stops else liked
    yield from _robust(bench, found[0], shown, setting.facts)
    yield from _bounded(bench, found[0], liked, setting.tokens, beside=forms.values())
    if liked.tells:
        yield from _told_of(tried, liked, rows, setting.prompt)


def _in_the_wrong_text(rows: Sequence[Mapping[str, str]], facts: Facts) -> str:
    """What is looked for in questions, and stands in answers only: the two were taken for each other."""
    for mark in facts.question_marks:
        asked, answered = (sum(mark in row[text] for row in rows) for text in ("question", "answer"))
        if not asked and answered > HALF * len(rows):
            return mark
    return ""


def _styled(bench: Bench, task: Task, liked: Liked, setting: Setting) -> Iterator[Remark]:
    """A reward that does not read the answer: right and wrong are none of its business."""
    yield Remark(
        "discrimination", "pass", "not judged: it does not read the answer, so it pays for style alone"
    )
    if setting.facts.dot_stops:
        yield from _robust(bench, task, liked, setting.facts)
    yield from _bounded(bench, task, liked, setting.tokens)


def _innocent(
    bench: Bench, task: Task, tried: Sequence[Liked], forms: Mapping[str, str], facts: Facts
) -> bool:
    """Whether it may tell right from wrong in a form that was not found."""
    if any(one.wrong > one.right + TOLERANCE for one in tried):
        return False
    if facts.reads_question or mutants.structured(task.answer):
        return True  # what is right is more than the answer in a dress
    asked = [ScoreRow(task.question, task.answer, dressed(form, task.answer)) for form in forms.values()]
    if bench.trace is not None and facts.answer_lines - (ran := bench.trace(asked)) and ran:
        return True  # where it reads the answer, nothing that was tried has come
    swapped = Task(task.question, task.other, task.answer, task.answer)
    here, there = bench.dress(task, forms, right=True), bench.dress(swapped, forms, right=False)
    return any(abs(here[name] - there[name]) > TOLERANCE for name in forms)


def _tells(bench: Bench, tasks: Sequence[Task], liked: Liked, others: Sequence[str]) -> Iterator[Remark]:
    """On how many rows the right answer is paid more, in the form that is liked or in another that tells."""
    forms = dict.fromkeys([liked.form, liked.form.replace("{final}", "{answer}"), *others[:MORE]])
    missed = []
    for task in tasks:
        wrongs = list(takewhile(bool, (_wrongly(bench, task, form) for form in forms)))
        missed += [wrongs[0]] if len(wrongs) == len(forms) else []
    told = len(tasks) - len(missed)
    if told / len(tasks) >= TELLS:
        text = f"right answers {liked.name} score {liked.right:g}, wrong ones {liked.wrong:g}"
        yield Remark("discrimination", "pass", text)
        return
    text = f"the right answer ({liked.name}) is paid more than a wrong one on {told} of {len(tasks)} rows"
    yield Remark("discrimination", "warn", f"{text}: {missed[0]}")


def _wrongly(bench: Bench, task: Task, form: str) -> str:
    """What is paid as much as the right answer in a form; empty where nothing is.

    One wrong answer that is paid may mean the same; two are evidence, and so are two that say nothing.
    """
    texts = {"right": task.answer, "wrong": task.other, "another": task.another, "nonsense": "qwertz"}
    texts = {name: dressed(form, text) for name, text in texts.items()} | {"nothing": ""}
    paid = bench.score(task, texts)
    least = {max(pair, key=paid.__getitem__): min(map(paid.__getitem__, pair)) for pair in WRONG}
    name, most = max(least.items(), key=lambda one: one[1])
    if paid["right"] > most + TOLERANCE:
        return ""
    return (
        f"{shortened(texts[name])} scored {paid[name]:g} and {shortened(texts['right'])} {paid['right']:g} "
        f"for {shortened(task.question)}"
    )


def _hacked(
    bench: Bench, tasks: Sequence[Task], rows: Sequence[Mapping[str, str]], liked: Liked
) -> Iterator[Remark]:
    """What is paid nearly as much on every row: once may be chance, as with few possible answers."""
    shares: dict[str, float] = {}
    for task in tasks:
        right = bench.dress(task, {"": liked.form}, right=True)[""]
        wrong = bench.dress(task, {"": liked.form}, right=False)[""]
        paid = bench.score(task, mutants.unearned(liked.form, task, rows))
        low = min(0.0, right, wrong, *(value for value in paid.values() if not math.isnan(value)))
        for key, value in paid.items():
            shares[key] = min(shares.get(key, math.inf), _share(known(value) - low, right - low))
    name = max(shares, key=lambda key: shares[key], default="")
    best = shares.get(name, -math.inf)
    if math.isfinite(best) and best < HACKED:
        yield Remark("hack", "pass", f"the best that earns nothing gets {max(best, 0):.0%} ({name})")
    elif best >= HACKED:
        share = f"{best:.0%} of what" if math.isfinite(best) else "more than"
        yield Remark("hack", "warn", f"{name} is paid {share} the right answer ({liked.name}) is paid")


def _share(paid: float, right: float) -> float:
    if right > TOLERANCE:
        return paid / right
    return math.inf if paid > right else -math.inf


def _with_thoughts(tried: Sequence[Liked], liked: Liked) -> Liked:
    """A form that is paid as well and has reasoning in it, which may be of several lines."""
    as_good = (one for one in tried if one.tells and one.right >= liked.right - TOLERANCE)
    return next((one for one in as_good if mutants.REASONING in one.form), liked)


def _robust(bench: Bench, task: Task, liked: Liked, facts: Facts) -> Iterator[Remark]:
    variants = mutants.harmless(liked.form)
    kinds = {"": liked.form, **variants}
    right = bench.dress(task, kinds, right=True)
    wrong = bench.dress(task, kinds, right=False)
    empty = bench.score(task, {"an empty completion": ""})["an empty completion"]
    span = right[""] - min(wrong[""], empty)
    if not span > TOLERANCE:
        return
    equal = [
        n for n in mutants.EQUAL if n in variants and (facts.dot_stops or n not in mutants.IF_A_DOT_STOPS)
    ]
    lost = [n for n in equal if right[n] < right[""] - LOST * span]
    gap = right[""] - wrong[""]
    if gap > TOLERANCE:
        told = {name: right[name] - wrong[name] >= HALF * gap for name in variants}
        marked = any(mark in liked.form for mark in (*mutants.MARKS, *facts.marks))
        lost += _cut_off(told, marked=marked)
    for name in lost:
        text = f"the right answer ({liked.name}) scores {right['']:g}, and {right[name]:g} with {name}"
        yield Remark("robustness", "warn", text)
    if not lost:
        yield Remark("robustness", "pass", "line breaks, long reasoning and remarks keep the right answer")


def _cut_off(told: Mapping[str, bool], *, marked: bool) -> Iterator[str]:
    """Where only a window is looked through: lost behind long text, but not beside as long a text elsewhere."""
    short_before, long_before, short_after, long_after = (told[name] for name in mutants.WINDOWS)
    if short_before and not long_before and long_after:
        yield mutants.WINDOWS[1]
    if marked and short_after and not long_after and long_before:
        yield mutants.WINDOWS[3]


def _bounded(
    bench: Bench, task: Task, liked: Liked, tokens: int, beside: Iterable[str] = ()
) -> Iterator[Remark]:
    """Nothing a model may write is worth ten right answers, or costs as much."""
    right, number = dressed(liked.form, task.answer), "987654321"
    texts = {"a huge completion": right + "\n" + "word " * tokens}
    texts["a huge number"] = mutants.filled(liked.form, number)
    for form in beside:  # another number that it reads, such as how sure the model is
        said = mutants.filled(form, number)
        texts[f"the right answer with {shortened(said)}"] = f"{right}\n{said}"
    for name, paid in bench.score(task, texts).items():
        if abs(paid) > UNBOUNDED * max(1.0, abs(liked.right)):
            text = f"{name} scores {paid:g}, the right answer {liked.right:g}: the score has no bounds"
            yield Remark("range", "warn", text)
            return


def _told_of(
    tried: Sequence[Liked], liked: Liked, rows: Sequence[Mapping[str, str]], prompt: str
) -> Iterator[Remark]:
    """Words that an answer is paid for only with, and that no prompt tells the model."""
    if not prompt:
        return
    shown = " ".join([prompt, *(row["question"] for row in rows)]).casefold()
    enough = liked.wrong + HALF * (liked.right - liked.wrong)
    if any(one.right >= enough and one.tells and _known_to(one.form, shown) for one in [*tried, liked]):
        return
    words = ", ".join(dict.fromkeys(_words(liked.form)))
    text = f"answers are paid only {liked.name}, and the prompt does not mention {words}: a model will rarely write it"
    yield Remark("prompt", "warn", text)


def _known_to(form: str, shown: str) -> bool:
    """Whether a model that reads this may think of the form."""
    words = list(_words(form))
    return not words or any(word.casefold() in shown for word in words)


def _words(form: str) -> Iterator[str]:
    """The words of a form that are not ours."""
    bare = re.sub(r"\{\w+\}", " ", form)
    for ours in (mutants.REASONING, "The answer is", "Answer:"):
        bare = bare.replace(ours, " ")
    yield from re.findall(r"[^\W\d_]{3,}", bare)
