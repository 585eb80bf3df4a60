"""Which checkpoint is meant: `best`, `step_N`, `step_N/mK` or `@alias`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from arena_gitops.spec.fields import CHECKPOINT_PATTERN, IN_WORDS


@dataclass(frozen=True, slots=True)
class Choice:
    """A parsed choice; exactly one of its forms is set, `best` being none of them."""

    step: int | None = None
    """`max_steps` units: the newest checkpoint at or before it"""
    member: int | None = None
    """only with `step`; absent: the fittest"""
    alias: str | None = None
    """a person's choice; only an apply follows it"""

    @property
    def best(self) -> bool:
        """Whether the rule of training.md §5 chooses."""
        return self.step is None and self.alias is None

    def __str__(self) -> str:
        if self.alias is not None:
            return f"@{self.alias}"
        if self.step is None:
            return "best"
        return f"step_{self.step}" if self.member is None else f"step_{self.step}/m{self.member}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a choice; raises ValueError with what was expected."""
        if not re.fullmatch(CHECKPOINT_PATTERN, text):
            raise ValueError(f"expected {IN_WORDS[CHECKPOINT_PATTERN]}, got {text!r}")
        if text.startswith("@"):
            return cls(alias=text[1:])
        if text == "best":
            return cls()
        step, _, member = text.removeprefix("step_").partition("/m")
        return cls(step=int(step), member=int(member) if member else None)
