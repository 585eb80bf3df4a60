"""Completions that a reward must tell apart: right and wrong answers in the same dress, and what models get away with.

Pure: texts in, texts and judgements out. A *form* is how an answer is dressed (`<answer>…</answer>`, `#### …`); the
form that the reward pays best for the right answer is taken as the reward's own, and everything is measured in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from arena_gitops.spec.job import RewardCase

FORMS: Mapping[str, str] = {
    "as in the dataset": "{answer}",
    "alone": "{final}",
    "in a sentence": "The answer is {final}.",
    "after a label": "Answer: {final}",
    "after ####": "#### {final}",
    "in \\boxed{}": "The answer is $\\boxed{{{final}}}$.",
    "in <answer> tags": "<answer>{final}</answer>",
    "in <answer> tags after <think>": "<think>step by step</think>\n<answer>{final}</answer>",
    "in <answer> tags after <think> on one line": "<think>step by step</think><answer>{final}</answer>",
    "in <answer> tags after </think>": "step by step</think>\n<answer>{final}</answer>",
    "whole in <answer> tags": "<think>step by step</think>\n<answer>{answer}</answer>",
    "in JSON": '{{"answer": "{final}"}}',
}
OWN = "as in the reward's own case"
REASONING = "step by step"
BEFORE, AFTER = "Let me think about it.\n", "\nThat is what I think about it."
LONG = 200
"""repetitions that make a text longer than any window a reward may look through"""


@dataclass(frozen=True, slots=True)
class Task:
    """One row, and another answer that is wrong for it."""

    question: str
    answer: str
    other: str
    """the whole text of an answer with another final part"""


def final(answer: str) -> str:
    """The part of an answer that counts: after ####, else a number at its end, else all of it."""
    marked = answer.rpartition("####")[2].strip()
    if marked and marked != answer.strip():
        return marked
    words = answer.split()
    return words[-1] if len(words) > 1 and re.search(r"\d", words[-1]) else answer.strip()


def tasks(rows: Sequence[Mapping[str, str]]) -> list[Task]:
    """Each row with the nearest later answer that differs from its own; rows without one are left out."""
    found = []
    for number, row in enumerate(rows):
        later = [*rows[number + 1 :], *rows[:number]]
        other = next((o["answer"] for o in later if _plain(o["answer"]) != _plain(row["answer"])), None)
        if other is not None and final(row["answer"]):
            found.append(Task(row["question"], row["answer"], other))
    return found


def forms(cases: Sequence[RewardCase], own: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Every form to be tried: the usual ones, those its source asks for, and that of the reward's best case."""
    best = max(cases, key=lambda case: case.expect, default=None)
    found = {**FORMS, **own}
    if best is not None and final(best.answer) and final(best.answer) in best.completion:
        text = best.completion.replace("{", "{{").replace("}", "}}")
        found[OWN] = text.replace(final(best.answer), "{final}")
    return found


def dressed(form: str, answer: str) -> str:
    """An answer in a form."""
    return form.format(answer=answer, final=final(answer))


def unearned(form: str, task: Task, rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Completions that do not answer the question, by name: none may be paid like the right answer."""
    gold, right = dressed(form, task.answer), final(task.answer)
    everything = _everything(task, rows)
    found = {
        "an empty completion": "",
        "white space": " \n\t ",
        "the question itself": task.question,
        "a word repeated": "the " * 400,
        "text in other scripts": "答えは分かりません 🙂 не знаю",
        "a list of all answers": everything,
        "a list of all answers in its form": form.format(answer=everything, final=everything),
        "the form without an answer": form.format(answer="", final=""),
        "the form with nonsense in it": form.format(answer="qwertz", final="qwertz"),
        "the form with a word for a number": form.format(answer="nan", final="nan"),
        "the form with an endless number": form.format(answer="1e999", final="1e999"),
        "the form with a power tower": form.format(answer="9**9**9**9", final="9**9**9**9"),
        "the form with a long run": form.format(answer="a" * 5000 + "!", final="a" * 5000 + "!"),
    }
    cut = gold[: gold.rfind(right)]
    if right not in cut:
        found["the right answer cut off"] = cut
    return {name: text for name, text in found.items() if text.strip() != gold.strip()}


def harmless(form: str) -> dict[str, str]:
    """Forms that change nothing about the answer, by name; `short` and `long` ones come in pairs."""
    found = {
        "a final line break": form + "\n",
        "short reasoning before it": BEFORE + form,
        "long reasoning before it": BEFORE * LONG + form,
        "a short remark after it": form + AFTER,
        "a long remark after it": form + AFTER * LONG,
    }
    if REASONING in form:
        found["reasoning of several lines"] = form.replace(REASONING, "first this\nthen that\n")
    if "<answer>{" in form:
        found["line breaks inside its tags"] = form.replace("<answer>{", "<answer>\n{").replace(
            "}</answer>", "}\n</answer>"
        )
    return found


WINDOWS = (
    ("short reasoning before it", "long reasoning before it"),
    ("a short remark after it", "a long remark after it"),
)
"""Pairs of which a reward that takes the first must take the second."""
MARKS = ("</answer>", "####", "\\boxed")
"""What says where an answer is, so that more text elsewhere is no reason not to find it."""
EQUAL = ("a final line break", "reasoning of several lines", "line breaks inside its tags")
"""Variants that must be paid like the form itself."""


def _everything(task: Task, rows: Sequence[Mapping[str, str]]) -> str:
    """Many answers, the right one neither first nor last."""
    right = final(task.answer)
    others = [final(row["answer"]) for row in rows if _plain(row["answer"]) != _plain(task.answer)]
    if re.fullmatch(r"[-+$]?[\d,.]+%?", right):
        before, after = ("$" if right.startswith("$") else ""), ("%" if right.endswith("%") else "")
        numbers = (f"{before}{number}{after}" for number in range(101))
        others += [number for number in numbers if number != right]
    others = others or [final(task.other)]
    half = max(1, len(others) // 2)
    return " ".join([*others[:half], right, *(others[half:] or [others[0]])])


def _plain(answer: str) -> str:
    return " ".join(final(answer).casefold().split())
