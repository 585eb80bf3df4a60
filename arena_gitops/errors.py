"""Every error a user can meet, as one tree; each leaf knows its exit code.

::

    ArenaError                      1
    ├── UsageError                 64   a flag or argument is wrong
    ├── RepoError                  65   the repository's own data is wrong; carries all diagnostics
    ├── InvalidDocumentError       65   one document is wrong; carries all problems, by path
    ├── BlockedError                3   policy, protection, or a hold forbids it
    ├── StaleError                  4   the world moved since the plan was made
    ├── LockedError                 5   somebody else holds the lease
    │   └── LeaseLostError          5   our own lease was released or taken while we worked
    ├── AuthError                   6   no token, a wrong token, or a role too low
    ├── PartialApplyError           7   some changes were applied, some were not
    ├── UnexpectedChangesError      8   `--expect-no-changes` and there were changes
    ├── WaitTimeoutError            9   `--wait` ran out of time
    ├── CheckFailedError           10   a check failed, or a waited-for run ended failed
    ├── InterruptedByUserError    130   SIGINT (143 for SIGTERM)
    └── PlatformError               1   the platform answered with an error
        ├── PlatformUnreachableError    no answer at all
        └── PlatformRejectedError       it understood and refused

To add a leaf: subclass here, give it `exit_code`, add it to the drawing. Adapters translate foreign
exceptions at their own door and chain the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad a diagnostic is. Only `ERROR` stops a command."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A place in a file of the repository: POSIX path relative to the root, 1-based line and column."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem or remark, with its place, what was expected and what to do."""

    message: str
    code: str
    """Stable kebab-case identifier, e.g. `unknown-key`; listed in the troubleshooting page."""
    span: Span | None = None
    hint: str = ""
    """What to do, in one sentence; empty when the message already says it."""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        place = f"{self.span}: " if self.span else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{place}{self.severity}: {self.message} [{self.code}]{hint}"


class ArenaError(Exception):
    """Base of everything this project raises on purpose."""

    exit_code = 1


class UsageError(ArenaError):
    """A flag or argument is wrong. 64, because 2 means `changes present` to CI."""

    exit_code = 64


class RepoError(ArenaError):
    """The repository's data is invalid; `diagnostics` holds every problem found, not the first."""

    exit_code = 65

    def __init__(
        self, diagnostics: list[Diagnostic] | tuple[Diagnostic, ...], *, where: str = "the repository"
    ) -> None:
        self.diagnostics = tuple(diagnostics)
        self.where = where
        super().__init__("\n".join(str(d) for d in self.diagnostics))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document, or worth a remark, by path; `repo` turns paths into places."""

    path: tuple[str | int, ...]
    """keys and indexes from the document's root, as its author wrote them; empty for the whole document"""
    message: str
    code: str
    """Stable kebab-case identifier, as in `Diagnostic`."""
    hint: str = ""
    override: str | None = None
    """the key of an experiment's `set:` that the value came from, when it is not the document's own"""

    def __str__(self) -> str:
        place = f"set.{self.override}" if self.override else ".".join(str(part) for part in self.path)
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{hint}" if place else f"{self.message}{hint}"


class InvalidDocumentError(ArenaError):
    """A document does not fit its model; `problems` holds every problem found, not the first."""

    exit_code = 65

    def __init__(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BlockedError(ArenaError):
    """Policy, budget, protection or a hold forbids the change."""

    exit_code = 3


class StaleError(ArenaError):
    """The platform or the repository moved since the plan was made."""

    exit_code = 4


class LockedError(ArenaError):
    """Another apply holds the lease; `lease` says which, as the platform told it."""

    exit_code = 5

    def __init__(self, message: str, lease: dict[str, str] | None = None) -> None:
        self.lease = lease or {}
        super().__init__(message)


class LeaseLostError(LockedError):
    """The lease under which we worked is over: somebody released or took it."""


class AuthError(ArenaError):
    """Authentication or authorisation failed."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class FailedStep:
    """One change that could not be applied, and why."""

    address: str
    message: str


class PartialApplyError(ArenaError):
    """Some changes were applied, others failed or were skipped."""

    exit_code = 7

    def __init__(self, message: str, failed: tuple[FailedStep, ...] = ()) -> None:
        self.failed = failed
        super().__init__(message)


class UnexpectedChangesError(ArenaError):
    """`--expect-no-changes` was given and there are changes."""

    exit_code = 8


class WaitTimeoutError(ArenaError):
    """`--wait` did not settle in time; the runs go on."""

    exit_code = 9


class CheckFailedError(ArenaError):
    """A check failed before anything was submitted, or a waited-for run ended failed."""

    exit_code = 10


class InterruptedByUserError(ArenaError):
    """The user asked to stop; what was in flight has been finished and recorded."""

    exit_code = 130


class PlatformError(ArenaError):
    """The platform answered with an error."""


class PlatformUnreachableError(PlatformError):
    """The platform did not answer."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The body of a refusal: HTTP-like status, stable code, text without square brackets."""

    status: int
    code: str
    message: str
    details: dict[str, str] = field(default_factory=dict)


class PlatformRejectedError(PlatformError):
    """The platform understood the request and refused it."""

    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection
        super().__init__(rejection.message)
