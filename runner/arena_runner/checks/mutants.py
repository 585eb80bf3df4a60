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
    "whole in a fenced block": "```\n{answer}\n```",
    "in bold": "**{final}**",
    "in double quotes": '"{final}"',
    "as so many words": "{words}",
    "as so many sentences": "{sentences}",
    "as so many bullets": "{bullets}",
    "its parts as bullets": "- {part}",
    "its parts numbered": "{n}. {part}",
}
OWN = "as in the reward's own case"
REASONING = "step by step"
BEFORE, AFTER = "Let me think about it.\n", "\nThat is what I think about it."
RUNS = {"letters": "a" * 5000 + "!", "digits": "1" * 4000 + "!", "spaces": "x" + " " * 5000 + "!"}
"""what a pattern with repetitions inside repetitions takes for ever to refuse"""
LONG = 200
"""repetitions that make a text longer than any window a reward may look through"""


@dataclass(frozen=True, slots=True)
class Task:
    """One row, and another answer that is wrong for it."""

    question: str
    answer: str
    other: str
    """the whole text of an answer with another final part"""
    another: str
    """one more of these, where there is one; else the same"""


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
        own = _plain(row["answer"])
        others = [other["answer"] for other in later if _plain(other["answer"]) != own]
        if others and final(row["answer"]):
            another = next((o for o in others if _plain(o) != _plain(others[0])), others[0])
            found.append(Task(row["question"], row["answer"], others[0], another))
    return found


def forms(cases: Sequence[RewardCase], own: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Every form to be tried: the usual ones, those its source asks for, and that of the reward's best case."""
    best = max(cases, key=lambda case: case.expect, default=None)
    found = {**FORMS, **own}
    if best is not None and final(best.answer) and final(best.answer) in best.completion:
        text = best.completion.replace("{", "{{").replace("}", "}}")
        found[OWN] = text.replace(final(best.answer), "{final}")
    return found


def filled(form: str, text: str) -> str:
    """The same text in every field of a form."""
    return form.format_map(_Everywhere(text))


class _Everywhere(dict[str, str]):
    """Any field is one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __missing__(self, key: str) -> str:
        return self._text


def drawn(form: str) -> bool:
    """Whether a form can be filled at all."""
    try:
        return dressed(form, "1") != form
    except (KeyError, ValueError, IndexError):
        return False


def dressed(form: str, answer: str) -> str:
    """An answer in a form; a line with `{part}` is there once for every part."""
    if "{part}" in form:
        parts = [part for part in parts_of(answer) if part]
        return "\n".join(form.format(part=part, n=n) for n, part in enumerate(parts, 1))
    fields = {"answer": answer, "final": final(answer)}
    if re.search(r"\{(?!answer|final)\w+\}", form):
        fields |= _more_fields(answer)
    return form.format(**fields)


def parts_of(answer: str) -> list[str]:
    """What an answer lists: split where there are commas and the like, else into words."""
    parts = [part.strip() for part in re.split(r"[;|,\n]", answer) if part.strip()] or [answer]
    return answer.split() if len(parts) == 1 and len(answer.split()) > 1 else parts


def _more_fields(answer: str) -> dict[str, str]:
    """The parts of an answer, and what a small whole number may ask for."""
    parts = parts_of(answer)
    count = int(answer) if re.fullmatch(r"[1-9]\d?", answer.strip()) else 0
    return {
        **{f"part{number}": parts[min(number, len(parts) - 1)] for number in range(4)},
        "words": " ".join(["word"] * count) or answer,
        "sentences": "".join(f"This is sentence {chr(97 + n % 26)}. " for n in range(count)).strip()
        or answer,
        "bullets": "".join(f"- point {chr(97 + n % 26)}\n" for n in range(count)).strip() or answer,
    }


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
        "a list of all answers in its form": filled(form, everything),
        "the form without an answer": filled(form, ""),
        "the form with nonsense in it": filled(form, "qwertz"),
        "the form with a word for a number": filled(form, "nan"),
        "the form with an endless number": filled(form, "1e999"),
        "the form with a power tower": filled(form, "9**9**9**9"),
        "the form with a huge number": filled(form, "987654321"),
        **{f"the form with a long run of {name}": filled(form, run) for name, run in RUNS.items()},
        **{f"a long run of {name}": run for name, run in RUNS.items()},
    }
    cut = gold[: gold.rfind(right)]
    if right not in cut and len(cut) < len(gold) / 2:  # more of it may deserve a part of the pay
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
    "short reasoning before it",
    "long reasoning before it",
    "a short remark after it",
    "a long remark after it",
)
"""What shows whether a reward looks through all of a completion."""
MARKS = ("</answer>", "####", "\\boxed")
"""What says where an answer is, so that more text elsewhere is no reason not to find it."""
EQUAL = ("a final line break", "reasoning of several lines", "line breaks inside its tags")
"""Variants that must be paid like the form itself."""
IF_A_DOT_STOPS = ("line breaks inside its tags",)
"""Variants that a strict reward may refuse, unless a dot in it was forgotten to match line breaks."""


def structured(answer: str) -> bool:
    """Whether it looks like something to check with, rather than something to say."""
    text = answer.strip()
    return text.startswith("{") or "assert " in text or "def " in text


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
    """What two answers have in common that mean the same: 7, 7.0 and $7 are one number."""
    text = " ".join(final(answer).casefold().split())
    number = re.fullmatch(r"\$?(-?\d[\d,]{0,15}(?:\.\d{1,9})?)\s?%?", text)
    return f"{float(number[1].replace(',', '')):g}" if number else text
