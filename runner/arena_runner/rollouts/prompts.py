"""From a row to token ids, through the tokenizer's own chat template.

The manifest's `prompt_template` names its messages `<role>_<position>` (`system_0`, `user_1`, `assistant_2`) and
may hold `{role}` placeholders, `{question}` above all. A last message of the assistant is a prefix that the model
continues. Without a template the question is one user message. Text outside placeholders is taken literally:
braces in a prompt are not format fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena_gitops.spec.job import DatasetCategory
from arena_runner.data import DataError, Row

PROMPT_ROLE = {
    DatasetCategory.REASONING: "question",
    DatasetCategory.SFT: "prompt",
    DatasetCategory.PREFERENCE: "prompt",
}
"""The role that asks; splits go by it."""


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

    prompts: tuple[Prompt, ...]
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


def fit(prompts: Iterable[Prompt], *, longest: int, room: int) -> Fitted:
    """Keep what fits: prompt ≤ `longest` - `room`, prompt and target together ≤ `longest`.

    Args:
        prompts: Rendered rows.
        longest: `max_context_length`.
        room: Tokens kept free for the completion (0 where it is known: SFT, DPO).
    """
    rendered: Sequence[Prompt] = tuple(prompts)
    kept = tuple(p for p in rendered if len(p.ids) + max(room, p.longest_answer) <= longest)
    return Fitted(kept, len(rendered) - len(kept))
