"""What a long answer says line by line, besides the verdicts of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Remark:
    """A line for people."""

    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The last line of what went well, with its result."""

    message: str
    detail: dict[str, Any]
