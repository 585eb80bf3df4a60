"""Make a plan so: a barrier, then one call per change, in the order of what depends on what.

Independent branches go on when one fails; what depends on a failure is skipped and says so. Each call is
written into the journal before it is made. Nothing here decides what to do: that is in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from arena_gitops.apply import barrier
from arena_gitops.apply.events import Applied, Listener, StepResult, StepStarted, silent
from arena_gitops.apply.journal import Journal
from arena_gitops.errors import (
    ArenaError,
    BlockedError,
    InterruptedByUserError,
    PartialApplyError,
    PlatformUnreachableError,
)
from arena_gitops.plan.model import Change, Plan, order
from arena_gitops.plan.upstream import settle
from arena_gitops.platforms.base import Platform
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import PutResource, ResourceDocument
from arena_gitops.state import DesiredState


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything an apply needs beside the plan."""

    platform: Platform
    journal: Journal
    listener: Listener = silent
    stopping: Callable[[], bool] = field(default=lambda: False)
    """asked between calls; a call that was begun is always finished"""

    def apply(self, plan: Plan, desired: DesiredState) -> Applied:
        """Apply a plan that was made of this desired state.

        Raises:
            BlockedError: The plan is not applyable.
            StaleError: The platform moved since.
            CheckFailedError: A check failed; nothing was changed.
            PartialApplyError: Some changes failed or were skipped.
            InterruptedByUserError: Asked to stop; what was begun was finished.
        """
        if not plan.applyable:
            raise BlockedError("the plan is blocked; nothing was changed")
        observed = self.platform.observe(desired.owner)
        barrier.require_fresh(plan, observed)
        settled = settle(desired, observed, plan.scope, plan.equivalent).desired
        todo = [change for change in plan.changes if change.action.acts]
        barrier.upload(self.platform, settled, todo, self.listener)
        barrier.check(self.platform, settled, todo, self.listener, self._stop_if_asked)
        return self._made(todo, settled)

    def _made(self, todo: list[Change], desired: DesiredState) -> Applied:
        steps: list[StepResult] = []
        gone: PlatformUnreachableError | None = None
        for change in sequence(todo):
            if gone is None:
                self._stop_if_asked(steps)
            try:
                step = self._step(change, desired, steps, gone)
            except PlatformUnreachableError as error:
                gone = error
                message = f"no answer, so it may or may not be done: {error}"
                step = StepResult(change.address, change.action, "failed", message)
            steps.append(step)
            self.listener(step)
        applied = Applied(tuple(steps))
        made = sum(step.outcome == "applied" for step in steps)
        if gone is not None and made == 0:
            raise gone
        if applied.failed:
            message = f"{made} of {len(steps)} changes were made; run the same command again to go on"
            raise PartialApplyError(message, applied.failed)
        return applied

    def _step(
        self,
        change: Change,
        desired: DesiredState,
        before: list[StepResult],
        gone: PlatformUnreachableError | None,
    ) -> StepResult:
        result = StepResult(change.address, change.action, "applied")
        failed = {step.address for step in before if step.outcome != "applied"}
        if blocker := next((address for address in change.depends_on if address in failed), None):
            return replace(result, outcome="skipped", message=f"dependency failed: {blocker}")
        if gone is not None:
            return replace(result, outcome="skipped", message="the platform does not answer")
        self.listener(StepStarted(change.address, change.action))
        seq = self.journal.begin(change)
        try:
            document = self._call(change, desired)
        except PlatformUnreachableError:
            raise  # nobody knows whether it arrived: the journal keeps the intent open, the next plan looks
        except ArenaError as error:
            self.journal.end(seq, "failed", message=str(error))
            return replace(result, outcome="failed", message=str(error))
        self.journal.end(seq, "applied", etag=document.etag if document else None)
        return _with_facts(result, document)

    def _call(self, change: Change, desired: DesiredState) -> ResourceDocument | None:
        etag = change.preconditions.etag
        if change.action.removes:
            self.platform.retire(change.at, desired.owner, etag=etag or "")
            return None
        resource = desired.resources[change.at]
        body = PutResource(
            owner=desired.owner,
            spec=dict(resource.spec),
            fingerprint=resource.fingerprint,
            provenance=resource.provenance,
            rerun=int(resource.spec.get("rerun") or 0),
        )
        return self.platform.put(change.at, body, etag=etag, idempotency_key=change.idempotency_key or "")

    def _stop_if_asked(self, steps: list[StepResult] | None = None) -> None:
        if self.stopping():
            made = sum(step.outcome == "applied" for step in steps or ())
            raise InterruptedByUserError(f"stopped after {made} changes; run the same command again to go on")


def sequence(changes: list[Change]) -> Iterator[Change]:
    """Changes in the order of waves and of what they depend on; removals last, the other way round."""
    kept = {change.at: change for change in changes if not change.action.removes}
    sorter: TopologicalSorter[Address] = TopologicalSorter()
    for address in sorted(kept, key=order):
        parents = [Address.parse(parent) for parent in kept[address].depends_on]
        sorter.add(address, *(parent for parent in parents if parent in kept))
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=order)
        yield from (kept[address] for address in ready)
        sorter.done(*ready)
    removed = [change for change in changes if change.action.removes]
    yield from sorted(removed, key=lambda change: order(change.at), reverse=True)


def _with_facts(result: StepResult, document: ResourceDocument | None) -> StepResult:
    """What only the platform could tell."""
    if document is None:
        return result
    deployment = document.deployment
    return replace(
        result,
        version=document.version,
        run_id=document.run.run_id if document.run else None,
        url=deployment.url if deployment else None,
    )
