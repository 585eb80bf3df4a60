"""What happens during an apply, as values: the command line prints them, CI writes them as lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, assert_never

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


def line(event: ApplyEvent) -> dict[str, Any]:
    """An event as one object of `--events ndjson`: its `type`, and what it says."""
    told: dict[str, Any]
    match event:
        case Uploaded():
            told = {"type": "uploaded", "file": event.blob.path.name, "digest": event.blob.digest}
            told |= {"done": event.done, "total": event.total}
        case CheckStarted():
            told = {"type": "check_started", "address": event.address}
        case Checked():
            told = {"type": "check", "for": event.address, "result": event.result.model_dump(mode="json")}
        case StepStarted():
            told = {"type": "step_started", "address": event.address, "action": event.action.value}
        case StepResult():
            told = {"type": "step", **asdict(event)}
        case Recovered():
            told = {"type": "recovered", **asdict(event)}
        case Told():
            told = {"type": "told", "message": event.message}
        case Progressed():
            runs = [run.model_dump(mode="json", include=PROGRESS) for run in event.runs]
            served = [
                {"name": name, **s.model_dump(mode="json", include=SERVED)} for name, s in event.deployments
            ]
            told = {"type": "progress", "runs": runs, "deployments": served}
        case _:
            assert_never(event)
    return told


PROGRESS = {"run_id", "experiment", "state", "reason", "message", "step", "max_steps", "generation"}
SERVED = {"state", "message", "revision", "checkpoint", "run_id", "url"}


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
