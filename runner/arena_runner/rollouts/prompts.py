"""From a row to token ids, through the tokenizer's own chat template.

The manifest's `prompt_template` names its messages `<role>_<position>` (`system_0`, `user_1`, `assistant_2`) and
may hold `{role}` placeholders, `{question}` above all. A last message of the assistant is a prefix that the model
continues. Without a template the question is one user message. Text outside placeholders is taken literally:
braces in a prompt are not format fields.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

from arena_gitops.spec.job import DatasetCategory
from arena_runner.data import DataError
from arena_runner.spool import Row

PROMPT_ROLE = {
    DatasetCategory.REASONING: "question",
    DatasetCategory.SFT: "prompt",
    DatasetCategory.PREFERENCE: "prompt",
}
"""The role that asks; splits go by it."""


KEPT = 4096
"""prompts whose token ids stay in memory"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row, ready for a model."""

    row: Row
    ids: tuple[int, ...]
    target: tuple[int, ...] = ()
    """SFT: the completion to imitate; DPO: the chosen one; with its end token"""
    rejected: tuple[int, ...] = ()
    """DPO: the other one"""

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest completion that is known beforehand."""
        return max(len(self.target), len(self.rejected))


@dataclass(frozen=True, slots=True)
class Fitted:
    """The prompts that fit, and how many rows did not."""

    prompts: Sequence[Prompt]
    dropped: int


class Renderer:
    """Turns rows into token ids for one tokenizer and one template."""

    def __init__(self, tokenizer: Any, template: Mapping[str, str] | None, role: str) -> None:
        self._tokenizer = tokenizer
        self._messages = _messages(template) if template else [("user", "{" + role + "}")]
        self._end: int | None = tokenizer.eos_token_id

    def text(self, row: Row) -> str:
        """The rendered prompt, template markers included."""
        messages = [{"role": role, "content": _filled(content, row)} for role, content in self._messages]
        if not self._tokenizer.chat_template:  # a base model: plain text
            return "\n".join(message["content"] for message in messages)
        continues = messages[-1]["role"] == "assistant"
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=not continues, continue_final_message=continues
        )
        return rendered

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of text that already holds its special tokens."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, row: Row) -> Prompt:
        """A prompt to complete."""
        return Prompt(row, self.ids(self.text(row)))

    def example(self, row: Row) -> Prompt:
        """A prompt with the completion to imitate; the end token is part of it."""
        return Prompt(row, self.ids(self.text(row)), self._answer(row["target"]))

    def pair(self, row: Row) -> Prompt:
        """A prompt with the chosen and the rejected answer."""
        return Prompt(
            row, self.ids(self.text(row)), self._answer(row["chosen"]), self._answer(row["rejected"])
        )

    def _answer(self, text: str) -> tuple[int, ...]:
        return self.ids(text) + (() if self._end is None else (self._end,))


def _messages(template: Mapping[str, str]) -> list[tuple[str, str]]:
    ordered = sorted(template.items(), key=lambda item: _position(item[0]))
    return [(name.rpartition("_")[0], content) for name, content in ordered]


def _position(name: str) -> int:
    role, _, number = name.rpartition("_")
    if role not in {"system", "user", "assistant"} or not number.isdigit():
        raise DataError(f"prompt_template.{name}: expected system_<n>, user_<n> or assistant_<n>")
    return int(number)


def _filled(content: str, row: Row) -> str:
    """Replace `{role}` by the row's text in one pass, so that text from a row is never a template itself."""
    parts: list[str] = []
    rest = content
    while rest:
        spots = [(at, role) for role in row if (at := rest.find("{" + role + "}")) >= 0]
        if not spots:
            break
        at, role = min(spots)
        parts += [rest[:at], row[role]]
        rest = rest[at + len(role) + 2 :]
    return "".join([*parts, rest])


class Prompts(Sequence[Prompt]):
    """Rows as prompts, rendered when they are asked for; the newest are kept."""

    def __init__(self, rows: Sequence[Row], form: Callable[[Row], Prompt], indices: Sequence[int]) -> None:
        self._indices = indices
        self._rendered = lru_cache(maxsize=KEPT)(lambda index: form(rows[index]))

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | Sequence[Prompt]:
        if isinstance(index, slice):
            return [self._rendered(row) for row in self._indices[index]]
        return self._rendered(self._indices[index])


def fit(rows: Sequence[Row], form: Callable[[Row], Prompt], *, longest: int, room: int) -> Fitted:
    """Keep what fits: prompt ≤ `longest` - `room`, prompt and answer together ≤ `longest`.

    Args:
        rows: Of one split; read once here, and again one by one when they are used.
        form: How a row becomes a prompt.
        longest: `max_context_length`.
        room: Tokens kept free for the completion (0 where it is known: SFT, DPO).
    """
    kept = array("Q")
    for index, prompt in enumerate(map(form, rows)):
        if len(prompt.ids) + max(room, prompt.longest_answer) <= longest:
            kept.append(index)
    return Fitted(Prompts(rows, form, kept), len(rows) - len(kept))
