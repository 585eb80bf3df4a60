"""What a reward is asked and what it answers: rows in, scores or one precise error out."""

from __future__ import annotations

from dataclasses import dataclass, field

from arena_gitops.errors import CheckFailedError, Span


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One call of the reward."""

    question: str
    answer: str
    completion: str


@dataclass(frozen=True, slots=True)
class Watched:
    """What one call took and touched."""

    seconds: float
    peak_bytes: int
    """of its process so far"""
    touched: tuple[str, ...]
    """`writes /tmp/x`, `starts bc`, `connects to …`: also what was refused"""


@dataclass(frozen=True, slots=True)
class Score:
    """A finite total, and its named parts when the reward returned a dict."""

    total: float
    components: dict[str, float] = field(default_factory=dict)
    watched: Watched | None = field(default=None, compare=False)
    """where the pool watches"""


class RewardError(CheckFailedError):
    """The user's reward is at fault: what it did, at which line of which of the user's files."""

    def __init__(
        self,
        message: str,
        file: str | None = None,
        line: int | None = None,
        *,
        output: str = "",
        hung: bool = False,
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.output = output
        """what the user's code had printed, bounded"""
        self.hung = hung
        """whether a call ran into its time limit"""
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(place + message)

    @property
    def span(self) -> Span | None:
        """The place as the rest of the project writes places."""
        return Span(self.file, self.line or 1) if self.file else None
