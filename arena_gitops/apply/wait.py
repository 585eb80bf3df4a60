"""Wait for the runs and deployments of a plan; only looks, so stopping to wait changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from arena_gitops.apply.events import Listener, Progressed, silent
from arena_gitops.errors import CheckFailedError, FailedStep, PartialApplyError, WaitTimeoutError
from arena_gitops.plan.model import Action, Plan
from arena_gitops.platforms.base import Platform
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import DeploymentStatus, Owner, ResourceDocument
from arena_gitops.state import ObservedState

POLL_S = 1.0


class Until(StrEnum):
    """How long to wait, as `--wait` names it."""

    NONE = "none"
    SUBMITTED = "submitted"
    RUNNING = "running"
    COMPLETE = "complete"


class Clock(Protocol):
    """Time, passed in so that tests need none."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """What to wait for, and for how long (None: for ever)."""

    until: Until = Until.SUBMITTED
    timeout_s: float | None = None
    poll_s: float = POLL_S


def wait(
    platform: Platform, plan: Plan, patience: Patience, clock: Clock, listener: Listener = silent
) -> ObservedState | None:
    """Wait until the plan's runs and deployments have got as far as asked.

    Returns what was seen last; None when there was nothing to wait for.

    Raises:
        CheckFailedError: A run of this plan failed.
        PartialApplyError: A rollout failed; the previous revision goes on serving.
        WaitTimeoutError: It takes longer than `timeout_s`; the runs go on.
    """
    if patience.until in {Until.NONE, Until.SUBMITTED}:
        return None
    owner = Owner(stack=plan.stack, namespace=plan.namespace)
    scope = _Scope.of(plan)
    began = clock.monotonic()
    while True:
        observed = platform.observe(owner)
        listener(Progressed(scope.runs(observed), scope.deployments(observed)))
        scope.raise_failures(observed)
        waiting = scope.waiting(observed, patience.until)
        if not waiting:
            return observed
        if patience.timeout_s is not None and clock.monotonic() - began >= patience.timeout_s:
            lines = "\n  ".join(waiting)
            raise WaitTimeoutError(f"not done after {patience.timeout_s:g} s; the work goes on\n  {lines}")
        clock.sleep(patience.poll_s)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The resources of a plan that somebody can wait for."""

    addresses: frozenset[Address]
    acted: frozenset[Address]
    known: frozenset[str]
    """what the plan said already about deployments that are held"""

    @classmethod
    def of(cls, plan: Plan) -> _Scope:
        kept = [change for change in plan.changes if not change.action.removes]
        acted = frozenset(change.at for change in kept if change.action.acts)
        known = frozenset(change.message for change in kept if change.action is Action.HELD)
        return cls(frozenset(change.at for change in kept), acted, known)

    def runs(self, observed: ObservedState) -> tuple[RunStatus, ...]:
        found = (observed.resources.get(address) for address in sorted(self.addresses))
        return tuple(document.run for document in found if document is not None and document.run is not None)

    def deployments(self, observed: ObservedState) -> tuple[tuple[str, DeploymentStatus], ...]:
        return tuple(
            (document.name, document.deployment)
            for document in self._deployed(observed)
            if document.deployment
        )

    def raise_failures(self, observed: ObservedState) -> None:
        """Only what this plan started can fail it; what was held before stays as it was."""
        runs = [
            document
            for address in sorted(self.acted)
            if (document := observed.resources.get(address)) is not None
            if document.run is not None and document.run.state is RunState.FAILED
        ]
        if runs:
            lines = "\n  ".join(_failed_run(document) for document in runs)
            raise CheckFailedError(f"{len(runs)} run{'' if len(runs) == 1 else 's'} failed\n  {lines}")
        rollouts = [d for d in self._deployed(observed) if d.deployment and self._failed(d.deployment)]
        if rollouts:
            steps = tuple(
                FailedStep(f"deployment/{d.name}", d.deployment.message) for d in rollouts if d.deployment
            )
            raise PartialApplyError("a rollout failed; what served before goes on serving", steps)

    def _failed(self, status: DeploymentStatus) -> bool:
        return status.state == "failed" or (status.refused and status.message not in self.known)

    def waiting(self, observed: ObservedState, until: Until) -> list[str]:
        """What has not got there yet, in words."""
        found = [
            f"experiment/{run.experiment}: {run.state}, step {run.step:,} of {run.max_steps:,}"
            for run in self.runs(observed)
            if not (run.state.ended or (until is Until.RUNNING and run.state is RunState.RUNNING))
        ]
        if until is Until.COMPLETE:
            reasons = {document.name: _unsettled(document, observed) for document in self._deployed(observed)}
            found += [f"deployment/{name}: {why}" for name, why in reasons.items() if why is not None]
        return found

    def _deployed(self, observed: ObservedState) -> list[ResourceDocument]:
        """Deployments of the plan, and those that follow one of its experiments."""
        return [
            document
            for address, document in sorted(observed.resources.items())
            if address.kind == "deployment"
            and (address in self.addresses or Address("experiment", _experiment(document)) in self.addresses)
        ]


def _experiment(document: ResourceDocument) -> str:
    return str(document.spec.get("experiment", ""))


def _failed_run(document: ResourceDocument) -> str:
    run = document.run
    reason = f" ({run.reason})" if run and run.reason else ""
    return f"experiment/{document.name} v{document.version}{reason}: {run.message if run else ''}"


def _unsettled(document: ResourceDocument, observed: ObservedState) -> str | None:
    """Why a deployment is not where it will stay; None when it is."""
    status = document.deployment
    if status is None:
        return "not looked at yet"
    now = f"{status.state}: {status.message}".rstrip(": ")
    if status.state in {"loading", "probing"}:
        return now
    if (choice := status.choice) is not None and choice.applied and choice.digest != status.digest:
        return now if status.state in {"serving", "pending"} and status.hold is None else None
    followed = observed.resources.get(Address("experiment", _experiment(document)))
    run = followed.run if followed else None
    if run is None or run.state in {RunState.STOPPED, RunState.FAILED}:
        return None  # nothing will come to be promoted
    checkpoint = str(document.spec.get("checkpoint", "best"))
    if checkpoint.startswith("@") or status.state in {"held", "undeployed"}:
        return None  # people decide what happens next
    return _behind(status, run, checkpoint) if status.state == "serving" else now


def _behind(status: DeploymentStatus, run: RunStatus, checkpoint: str) -> str | None:
    """What serves, if it is not yet what the run has to offer."""
    newer = checkpoint == "best" and run.best is not None and status.digest != run.best.digest
    if status.run_id == run.run_id and not newer:
        return None
    return f"serves {status.checkpoint} of {status.run_id}, not yet the best of {run.run_id}"
