"""What happens during an apply, as values: the command line prints them, CI writes them as lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from arena_gitops.errors import FailedStep
from arena_gitops.plan.model import Action
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.wire import CheckResult, DeploymentStatus
from arena_gitops.state import Blob


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file has arrived."""

    blob: Blob
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CheckStarted:
    """The checks of one experiment begin."""

    address: str


@dataclass(frozen=True, slots=True)
class Checked:
    """One verdict, for the experiment it was asked for."""

    address: str
    result: CheckResult


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A change is being made."""

    address: str
    action: Action


@dataclass(frozen=True, slots=True)
class StepResult:
    """How one change went."""

    address: str
    action: Action
    outcome: Literal["applied", "failed", "skipped"]
    message: str = ""
    version: int | None = None
    run_id: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an earlier apply had begun when it was killed, and whether the platform has it."""

    address: str
    action: str
    arrived: bool


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence for people: waiting for somebody, a heartbeat that got no answer."""

    message: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Where the runs and deployments of an apply are, while it waits."""

    runs: tuple[RunStatus, ...]
    deployments: tuple[tuple[str, DeploymentStatus], ...]


ApplyEvent = Uploaded | CheckStarted | Checked | StepStarted | StepResult | Recovered | Told | Progressed


class Listener(Protocol):
    """Whoever wants to know. Must return soon and must not raise."""

    def __call__(self, event: ApplyEvent, /) -> None:
        """Take note of an event."""
        ...


def silent(event: ApplyEvent, /) -> None:
    """A listener that keeps quiet."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Every step of an apply, in the order in which it was taken."""

    steps: tuple[StepResult, ...]

    @property
    def failed(self) -> tuple[FailedStep, ...]:
        """Steps that were not made, with the reason."""
        return tuple(FailedStep(s.address, s.message) for s in self.steps if s.outcome != "applied")
