"""Make a plan so: a barrier, then one call per change, level by level of what depends on what.

Calls of one level are made several at a time. Independent branches go on when one fails; what depends on a
failure is skipped and says so. Each call is written into the journal before it is made. Nothing here decides
what to do: that is in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import groupby

from arena_gitops.apply import barrier
from arena_gitops.apply.events import Applied, Listener, Recovered, StepResult, StepStarted, silent
from arena_gitops.apply.journal import Journal
from arena_gitops.apply.lease import Grip
from arena_gitops.apply.parallel import each
from arena_gitops.errors import (
    ArenaError,
    BlockedError,
    CheckFailedError,
    InterruptedByUserError,
    LeaseLostError,
    PartialApplyError,
    PlatformUnreachableError,
    StaleError,
)
from arena_gitops.plan.adoption import with_imports
from arena_gitops.plan.model import Action, Change, Plan, order
from arena_gitops.plan.upstream import settle
from arena_gitops.platforms.base import Platform, look
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import PutResource, ResourceDocument
from arena_gitops.state import DesiredState, ObservedState

PARALLEL = 8
TOLD = 20
"""Changes that were made are listed up to here when others were not."""
GO_ON = "run the same command again to go on"


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything an apply needs beside the plan."""

    platform: Platform
    journal: Journal
    listener: Listener = silent
    stopping: Callable[[], bool] = field(default=lambda: False)
    """asked between calls; a call that was begun is always finished"""
    parallel: int = PARALLEL
    grip: Grip | None = None
    """the lease under which it works"""
    keep_going: bool = False
    """whether a check that fails holds up only what depends on it"""
    strict: bool = False
    """whether nothing of the whole stack may have been written since the plan was made"""

    def apply(self, plan: Plan, desired: DesiredState) -> Applied:
        """Apply a plan that was made of this desired state.

        Raises:
            BlockedError: The plan is not applyable.
            StaleError: The platform moved since.
            CheckFailedError: A check failed; nothing was changed.
            PartialApplyError: Some changes failed or were skipped.
            InterruptedByUserError: Asked to stop; what was begun was finished.
            LeaseLostError: Somebody released or took our lease; what was begun was finished.
        """
        if not plan.applyable:
            raise BlockedError("the plan is blocked; nothing was changed")
        observed = with_imports(desired, look(self.platform, desired))
        self._look_back(observed)
        barrier.require_fresh(plan, observed, strict=self.strict)
        settled = settle(desired, observed, plan.scope, plan.equivalent).desired
        todo = [change for change in plan.changes if change.action.acts]
        barrier.upload(self.platform, settled, todo, self.listener, self._stop_if_asked)
        failed = barrier.check(
            self.platform, settled, todo, self.listener, self._stop_if_asked, keep_going=self.keep_going
        )
        return _Work(self, settled, purge=plan.scope.purge, failed=failed).done(todo)

    def _look_back(self, observed: ObservedState) -> None:
        """An earlier apply was killed in the middle of these calls: the platform knows which of them arrived."""
        for intent in self.journal.unresolved():
            document = observed.resources.get(Address.parse(intent.address))
            arrived = (document.etag if document else None) != intent.etag
            self.journal.end(intent.seq, "arrived" if arrived else "lost")
            self.listener(Recovered(intent.address, intent.action, arrived))
        self.journal.put_aside_if_long()

    def _stop_if_asked(self) -> None:
        if self.stopping():
            raise InterruptedByUserError(f"stopped before the first change; {GO_ON}")
        if self.grip is not None and self.grip.lost:
            raise LeaseLostError("the lease was lost before the first change; nothing was changed")


@dataclass(slots=True)
class _Work:
    """The calls of one apply, and what came of them so far."""

    engine: Engine
    desired: DesiredState
    purge: bool = False
    """whether what is removed takes its data with it"""
    failed: Mapping[str, str] = field(default_factory=dict)
    """what a check has failed for, and why; it is not begun"""
    steps: list[StepResult] = field(default_factory=list)
    gone: PlatformUnreachableError | None = None
    stopped: bool = False
    stale: bool = False
    """whether something was no longer as planned when its turn came"""

    def done(self, todo: list[Change]) -> Applied:
        """Every level in turn; what came of it, or the error that says how far it got."""
        for level in levels(todo):
            for _, step in each(level, self._step, at_most=self.engine.parallel):
                if step is not None:
                    self.steps.append(step)
                    self.engine.listener(step)
            if self.stopped or self._lost():
                break
        return self._concluded(len(todo))

    def _concluded(self, count: int) -> Applied:
        made = sum(step.outcome == "applied" for step in self.steps)
        if self._lost():
            message = f"the lease was lost after {made} of {count} changes: somebody released or took it"
            raise LeaseLostError(f"{message}; {GO_ON}")
        if len(self.steps) < count:
            raise InterruptedByUserError(f"stopped after {made} changes; {GO_ON}")
        if self.gone is not None and made == 0:
            raise self.gone
        applied = Applied(tuple(self.steps))
        if self.stale:
            message = f"{made} of {count} changes were made, others are not as planned any more; plan again"
            raise StaleError("\n".join([message, *_table(self.steps)]))
        if self.failed:
            message = f"{made} of {count} changes were made, {len(self.failed)} failed a check; mend them and {GO_ON}"
            raise CheckFailedError("\n".join([message, *_table(self.steps)]))
        if applied.failed:
            message = f"{made} of {count} changes were made; {GO_ON}"
            raise PartialApplyError("\n".join([message, *_table(self.steps)]), applied.failed)
        return applied

    def _lost(self) -> bool:
        return self.engine.grip is not None and self.engine.grip.lost

    def _step(self, change: Change) -> StepResult | None:
        """One change; None when it is not begun any more."""
        result = StepResult(change.address, change.action, "applied")
        failed = {step.address for step in self.steps if step.outcome != "applied"}
        if self.stopped or self._lost():
            return None
        if blocker := next((address for address in change.depends_on if address in failed), None):
            return replace(result, outcome="skipped", message=f"dependency failed: {blocker}")
        if (why := self.failed.get(change.address)) is not None:
            return replace(result, outcome="failed", message=why)
        if self.gone is not None:
            return replace(result, outcome="skipped", message="the platform does not answer")
        if self.engine.stopping():
            self.stopped = True
            return None
        self.engine.listener(StepStarted(change.address, change.action))
        return self._made(change, result)

    def _made(self, change: Change, result: StepResult) -> StepResult:
        journal = self.engine.journal
        seq = journal.begin(change)
        try:
            document = self._call(change)
        except PlatformUnreachableError as error:
            # nobody knows whether it arrived: the journal keeps the intent open, the next apply looks
            self.gone = error
            return replace(
                result, outcome="failed", message=f"no answer, so it may or may not be done: {error}"
            )
        except ArenaError as error:
            journal.end(seq, "failed", message=str(error))
            self.stale = self.stale or isinstance(error, StaleError)
            if isinstance(error, LeaseLostError) and self.engine.grip is not None:
                self.engine.grip.lose()
            return replace(result, outcome="failed", message=str(error))
        journal.end(seq, "applied", etag=document.etag if document else None)
        return _with_facts(result, document)

    def _call(self, change: Change) -> ResourceDocument | None:
        platform, etag = self.engine.platform, change.preconditions.etag
        fence = self.engine.grip.fence if self.engine.grip else None
        if change.action.removes:
            owner, purge = self.desired.owner, self.purge
            platform.retire(change.at, owner, etag=etag or "", fence=fence, purge=purge)
            return None
        resource = self.desired.resources[change.at]
        body = PutResource(
            owner=self.desired.owner,
            spec=dict(resource.spec),
            fingerprint=resource.fingerprint,
            provenance=resource.provenance,
            rerun=int(resource.spec.get("rerun") or 0),
            adopt=change.action is Action.IMPORT,
            choice=change.preconditions.choice,
        )
        key = change.idempotency_key or ""
        return platform.put(change.at, body, etag=etag, idempotency_key=key, fence=fence)


def _table(steps: list[StepResult]) -> Iterator[str]:
    """What was done, failed and skipped; many that were done are only counted."""
    width = max(len(step.address) for step in steps)
    done = [step for step in steps if step.outcome == "applied"]
    if len(done) > TOLD:
        yield f"  done     {len(done)} changes"
    for step in steps:
        if step.outcome != "applied" or len(done) <= TOLD:
            outcome = "done" if step.outcome == "applied" else step.outcome
            yield f"  {outcome:<7}  {step.address:<{width}}  {step.message}".rstrip()


def levels(changes: list[Change]) -> Iterator[list[Change]]:
    """Changes that may be made beside each other, in the order of what they depend on; removals last.

    Kinds keep their waves: a project is there before a dataset, and goes after it.
    """
    for ready in _in_turn([change for change in changes if not change.action.removes]):
        yield from _waves(ready)
    removed = [change for change in changes if change.action.removes]
    for wave in _waves(sorted(removed, key=lambda change: order(change.at), reverse=True)):
        yield from (level[::-1] for level in _in_turn(wave))


def _in_turn(changes: list[Change]) -> Iterator[list[Change]]:
    """What waits for nothing of these, then what waited for it, and so on."""
    here = {change.at: change for change in changes}
    sorter: TopologicalSorter[Address] = TopologicalSorter()
    for address in sorted(here, key=order):
        before = [Address.parse(other) for other in here[address].depends_on]
        sorter.add(address, *(other for other in before if other in here))
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=order)
        yield [here[address] for address in ready]
        sorter.done(*ready)


def _waves(changes: list[Change]) -> Iterator[list[Change]]:
    for _, wave in groupby(changes, key=lambda change: order(change.at)[0]):
        yield list(wave)


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
