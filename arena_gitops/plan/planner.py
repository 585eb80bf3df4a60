"""What happens to each resource: cause by phase gives the action, known runs and blocks may change it.

One `Change` per address, from the two sides of that address alone; what concerns the plan as a whole is `build`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from arena_gitops.plan import adoption, cost, limits, safety, sharing, units, wording
from arena_gitops.plan.classify import TRAINED, VERSIONED, Finding, classify, range_of, spec_at
from arena_gitops.plan.dependants import going_first, users
from arena_gitops.plan.estimate import History
from arena_gitops.plan.fit import fit_of
from arena_gitops.plan.matrix import Cause, outcome, same_outcome
from arena_gitops.plan.model import (
    Action,
    Change,
    FingerprintChange,
    Preconditions,
    Range,
    order,
)
from arena_gitops.plan.moves import renamed_with_edits
from arena_gitops.plan.phase import Phase, phase_of
from arena_gitops.plan.scope import Scope, rerun_of
from arena_gitops.plan.upstream import Stale
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.resource import MAIN, Address, is_preview
from arena_gitops.spec.wire import KnownRun, Owner, ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

USABLE = frozenset({"queued", "validating", "running", "completed"})
"""States in which an existing run stands for the same work; stopped and failed ones are not a result."""
GOES_ON = frozenset({Action.RESUME, Action.MIGRATE})
"""Actions that let a run go on from where it is."""
KEEP_OLD = "lifecycle.replace_policy: keep_old"
MOVED = "moved"
"""The reason of both halves of a move."""


def idempotency_key(
    owner: Owner, address: Address, resource: DesiredResource | None, etag: str | None
) -> str:
    """Identity of one write: who, what, from which stored state, to which content.

    The stored state (etag) is part of it, so that going back to earlier content is a new write, while a
    repeated request is the same one. That training starts once is the run fingerprint's work, not the key's.
    """
    content = None if resource is None else [resource.fingerprint.run, sha256_json(dict(resource.spec))]
    return sha256_json([owner.stack, owner.namespace, str(address), etag, content])


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What was decided about one resource."""

    action: Action
    reason: str
    message: str = ""
    finding: Finding = field(default_factory=lambda: Finding(Cause.NONE))
    interrupts: bool = False

    def unless(self, block: safety.Block | None) -> _Verdict:
        """The same, or what stands in its way."""
        if block is None:
            return self
        return replace(self, action=Action.BLOCKED, reason=block.reason, message=block.message)


@dataclass(frozen=True, slots=True)
class Planner:
    """Both sides, and everything a single resource is judged by."""

    desired: DesiredState
    observed: ObservedState
    stale: Mapping[Address, Stale]
    allow: frozenset[str]
    scope: Scope
    moved: Mapping[Address, Address]
    history: History

    def changes(self, addresses: frozenset[Address]) -> list[Change]:
        """One change per address, in the order of a plan; a part of a stack is never pruned."""
        kept = addresses if self.scope.whole else addresses & self.desired.resources.keys()
        found = [self.change(address) for address in sorted(kept, key=order)]
        if self.scope.whole:
            return self._in_turn(found)
        return [self._with_parents(change, kept) for change in found]

    def _in_turn(self, found: list[Change]) -> list[Change]:
        """The same, where what is removed waits for what builds on it."""
        gone = frozenset(change.at for change in found if change.action.removes)
        if not gone:
            return found
        known = users(self.observed.resources)
        first = {at: going_first(at, gone, known) for at in gone}
        return [
            c.model_copy(update={"depends_on": (*c.depends_on, *first[c.at])}) if first.get(c.at) else c
            for c in found
        ]

    def _with_parents(self, change: Change, addresses: frozenset[Address]) -> Change:
        """The change, unless it needs something that is not selected and not there."""
        parents = [Address.parse(parent) for parent in change.depends_on]
        left_out = [self.change(p) for p in parents if p.kind == TRAINED and p not in addresses]
        block = safety.left_out(change, left_out)
        if block is None:
            return change
        blocked = {"action": Action.BLOCKED, "reason": block.reason, "message": block.message, "severity": 0}
        return change.model_copy(update={**blocked, "cost": None, "unknown": (), "notes": ()})

    def change(self, address: Address) -> Change:
        """What happens to one address."""
        resource = self.desired.resources.get(address)
        if resource is None:
            return self._removed(address, self.observed.resources[address])
        document = self.observed.resources.get(address)
        if document is None:
            return self._created(resource)
        if address in self.desired.imports and document.owner != self.desired.owner:
            return self._imported(resource, document)
        return self._compared(resource, document)

    def _imported(self, resource: DesiredResource, document: ResourceDocument) -> Change:
        wanted = self.desired.imports[resource.address]
        finding = classify(resource, document, cap=self.observed.max_steps)
        stated = wording.reason(finding, document, outcome(finding.cause, phase_of(document)).action)
        block = adoption.difference(finding, document, wanted, stated)
        message = wording.imported(document, differs=adoption.starts(finding, document))
        verdict = _Verdict(Action.IMPORT, adoption.IMPORTED, message, finding)
        return self._finished(resource, document, verdict.unless(block))

    def _created(self, resource: DesiredResource) -> Change:
        known = self._known(resource)
        if known is not None and self._covers(known, resource):
            verdict = _Verdict(Action.REUSE, "run_exists", wording.known_run(known))
        else:
            verdict = _Verdict(Action.CREATE, "new_in_repo")
        old = self.moved.get(resource.address)
        wanted = self.desired.imports.get(resource.address)
        block = wanted and adoption.not_found(resource.address, wanted, self.observed)
        block = block or safety.conflict(resource.address, self.observed)
        block = block or limits.refused(resource.address, verdict.action, self.observed)
        block = block or self._untrainable(resource, verdict.action)
        if old is not None:
            document = self.observed.resources[old]
            verdict = _moved(verdict, resource, document)
            block = block or safety.held_move(verdict.action, resource, document)
        elif self.scope.whole and verdict.action is Action.CREATE:
            renamed = renamed_with_edits(resource.address, self.desired, self.observed, self.moved.values())
            block = block or safety.undeclared_move(resource.address, renamed)
        change = self._finished(resource, None, verdict.unless(block))
        return change.model_copy(update={"previous_address": str(old)}) if old is not None else change

    def _compared(self, resource: DesiredResource, document: ResourceDocument) -> Change:
        finding = classify(resource, document, cap=self.observed.max_steps)
        phase = phase_of(document)
        cell = outcome(finding.cause, phase)
        action, reason = cell.action, finding.cause.value
        others = self._keeping(document) if cell.interrupts or action is Action.CAP else ()
        if action is Action.CAP and (others or not self.observed.limits.raises_in_flight):
            action = Action.NOOP
        message = wording.reason(finding, document, action)
        if (
            action is Action.NEW_VERSION
            and (known := self._known(resource))
            and self._covers(known, resource)
        ):
            action, message = Action.REUSE, f"{message}; {wording.known_run(known)}"
        if action is Action.NEW_VERSION and finding.cause is Cause.PARENT:
            message = self.observed.limits.unread.get(resource.address, message)
        if limits.waits(finding.cause, phase, self.observed):
            action, message = Action.PENDING, f"{message}; once its run has ended, the next apply resumes it"
        if action is Action.NOOP and resource.address in self.stale:
            action, reason, message = Action.STALE, "upstream_changed", self.stale[resource.address].message
        if action is Action.HELD:
            reason = f"run_{phase.value}"
        block = limits.refused(resource.address, action, self.observed) or safety.resumable(action, document)
        block = block or self._untrainable(resource, action)
        beside = action is Action.NEW_VERSION and _keeps_old(resource)
        verdict = _Verdict(action, reason, message, finding, cell.interrupts and not others and not beside)
        change = self._finished(resource, document, verdict.unless(block))
        if beside and cell.interrupts and not others and document.run is not None:
            change = _with_note(
                change, f"run {document.run.run_id} goes on beside it to its end ({KEEP_OLD})"
            )
        return _with_note(change, sharing.note(others)) if others else change

    def _keeping(self, document: ResourceDocument) -> tuple[Address, ...]:
        """Whoever else keeps the run going that this change would stop."""
        return sharing.staying(document, self.desired, self.observed)

    def _removed(self, address: Address, document: ResourceDocument) -> Change:
        if moved_to := next((to for to, old in self.moved.items() if old == address), None):
            return self._left_behind(address, document, moved_to)
        phase = phase_of(document)
        cell = outcome(Cause.REMOVED, phase)
        action = Action.DESTROY if address.kind == "deployment" else cell.action
        empty = not self.desired.resources
        others = self._keeping(document) if cell.interrupts else ()
        interrupts = cell.interrupts and not others
        block = safety.removal(document, self.allow, interrupts=interrupts, empty=empty)
        return Change(
            address=str(address),
            action=Action.BLOCKED if block else action,
            reason=block.reason if block else Cause.REMOVED.value,
            message=block.message if block else wording.removed(address, document, shared=bool(others)),
            notes=(sharing.note(others),) if others else (),
            severity=0 if block else action.severity,
            preconditions=preconditions(Cause.REMOVED, document),
            fingerprint=FingerprintChange(old=document.fingerprint.run),
            interrupts=interrupts,
            idempotency_key=idempotency_key(self.desired.owner, address, None, document.etag),
        )

    def _left_behind(self, address: Address, document: ResourceDocument, to: Address) -> Change:
        """The old name of something that moved: forgotten once the new one is there."""
        shared = self._created(self.desired.resources[to]).action is Action.MOVE
        interrupts = not shared and outcome(Cause.REMOVED, phase_of(document)).interrupts
        # whether it is protected is the new name's business by now
        block = safety.removal(
            document.model_copy(update={"spec": {}}), self.allow, interrupts=interrupts, empty=False
        )
        action = Action.BLOCKED if block else Action.RETIRE
        return Change(
            address=str(address),
            action=action,
            reason=block.reason if block else MOVED,
            message=block.message if block else f"is {to} now; data is kept",
            severity=action.severity,
            preconditions=preconditions(Cause.REMOVED, document),
            depends_on=(str(to),),
            fingerprint=FingerprintChange(old=document.fingerprint.run),
            interrupts=interrupts,
            idempotency_key=idempotency_key(self.desired.owner, address, None, document.etag),
        )

    def _finished(
        self, resource: DesiredResource, document: ResourceDocument | None, verdict: _Verdict
    ) -> Change:
        action, finding = verdict.action, verdict.finding
        plain = action is Action.NOOP and not verdict.message and not finding.fields
        if plain and resource.address.kind != "deployment":  # most of a large stack: it will only be counted
            return Change.model_construct(address=str(resource.address), action=action, reason=verdict.reason)
        etag = document.etag if document else None
        key = idempotency_key(self.desired.owner, resource.address, resource, etag) if action.acts else None
        too_large = verdict.reason == safety.DOES_NOT_FIT
        return Change(
            address=str(resource.address),
            action=action,
            reason=verdict.reason,
            message=verdict.message,
            severity=action.severity,
            range=_place(resource, finding),
            preconditions=preconditions(finding.cause, document),
            depends_on=tuple(str(address) for address in sorted(resource.depends_on, key=order)),
            fields=finding.fields,
            fingerprint=_fingerprint(resource, document),
            cost=cost.cost_of(
                action, resource, self.observed.tiers, self.history, done=_done(action, document)
            ),
            fit=fit_of(resource, self.observed) if _starts(resource, action) or too_large else None,
            unknown=_unknown(resource, action),
            interrupts=verdict.interrupts,
            idempotency_key=key,
            notes=self._notes(resource, action),
        )

    def _notes(self, resource: DesiredResource, action: Action) -> tuple[str, ...]:
        if resource.address.kind == TRAINED and action is Action.HELD:
            told = ", ".join(resource.spec.get("notify") or ())
            note = wording.released(by_hand=self.observed.limits.resumes)
            return (note, f"tell {told}") if told else (note,)
        if action is Action.STALE:
            ceiling = cost.cost_of(Action.NEW_VERSION, resource, self.observed.tiers, self.history)
            return (wording.again(self.stale[resource.address].because, ceiling),)
        if resource.address.kind == "reward" and action.acts:
            return wording.powers(resource.spec)
        asked = ("asked for by --rerun",) if str(resource.address) in self.scope.rerun else ()
        if resource.address.kind != TRAINED or not action.spends:
            return ()
        notes = (*asked, *units.describe(resource.spec, self.observed.max_steps))
        if action in GOES_ON and notes:
            notes = (f"the whole run: {notes[0]}", *notes[1:])
        if action not in GOES_ON and resource.spec.get("reuse") is False:
            notes += ("reuse: false, so it is trained whatever there is of the same work",)
        known = self._known(resource)
        if action not in GOES_ON and known is not None:
            named = f"run {known.run_id}" if known.version else f"the run of {TRAINED}/{known.experiment}"
            here = self.desired.owner.namespace
            if here == MAIN:
                notes += (f"continues {named} ({known.state}, {known.max_steps:,} steps asked for then)",)
            else:
                whose = "a preview" if is_preview(here) else f"namespace {here}"
                notes += (f"trains a run of its own: {whose} does not lengthen {named}",)
        return notes

    def _known(self, resource: DesiredResource) -> KnownRun | None:
        if resource.address.kind != TRAINED:
            return None
        return self.observed.runs.get((resource.fingerprint.run, rerun_of(resource.spec)))

    def _covers(self, known: KnownRun, resource: DesiredResource) -> bool:
        """Whether a known run is, or will be, at least what is asked for."""
        wanted = spec_at(resource.spec, "manifest.training.max_steps")
        limit = self.observed.max_steps
        steps = wanted if limit is None or not isinstance(wanted, int) else min(wanted, limit)
        enough = not isinstance(steps, int) or known.max_steps >= steps
        return known.state in USABLE and enough

    def _untrainable(self, resource: DesiredResource, action: Action) -> safety.Block | None:
        if not _starts(resource, action):
            return None
        oversize = safety.oversize(fit_of(resource, self.observed), self.allow)
        return safety.trainable(resource, self.observed) or oversize


def _keeps_old(resource: DesiredResource) -> bool:
    """Whether a run at work may come to its end beside a new version."""
    return bool(spec_at(resource.spec, "lifecycle.replace_policy") == "keep_old")


def _with_note(change: Change, note: str) -> Change:
    return change.model_copy(update={"notes": (*change.notes, note)})


def _moved(verdict: _Verdict, resource: DesiredResource, document: ResourceDocument) -> _Verdict:
    """The verdict on a new name, knowing what it was called before."""
    was = f"was {document.kind}/{document.name}"
    trained = resource.address.kind == TRAINED
    same = (
        verdict.action is Action.REUSE if trained else resource.fingerprint.data == document.fingerprint.data
    )
    if same and (not trained or resource.fingerprint.run == document.fingerprint.run):
        message = f"{was}: the same content under a new name, versions count from v1"
        return replace(verdict, action=Action.MOVE, reason=MOVED, message=message)
    differs = "and changed" if resource.fingerprint.run != document.fingerprint.run else "its run goes on"
    return replace(verdict, reason=MOVED, message=f"{was}, {differs}")


def preconditions(cause: Cause, document: ResourceDocument | None) -> Preconditions:
    """What must still hold: the etag, and a state of the run in which the same would be done."""
    if document is None:
        return Preconditions()
    phase = phase_of(document)
    phases = () if phase is Phase.IDLE else same_outcome(cause, phase)
    return Preconditions(etag=document.etag, status=tuple(p.value for p in phases if p is not Phase.IDLE))


def _fingerprint(resource: DesiredResource, document: ResourceDocument | None) -> FingerprintChange:
    new = resource.fingerprint
    return FingerprintChange(
        old=document.fingerprint.run if document else None,
        new=new.run,
        data=new.data,
        meta=new.meta,
        parents=new.parents_data,
    )


def _place(resource: DesiredResource, finding: Finding) -> Range | None:
    deciding = (
        field.range for field in finding.fields if field.reason == finding.cause.value and field.range
    )
    return next(deciding, range_of(resource.span))


def _done(action: Action, document: ResourceDocument | None) -> int:
    """Steps that a resumed run has behind it."""
    run = document.run if document is not None else None
    return run.step if action in GOES_ON and run is not None else 0


def _starts(resource: DesiredResource, action: Action) -> bool:
    return resource.address.kind == TRAINED and action.spends


def _unknown(resource: DesiredResource, action: Action) -> tuple[str, ...]:
    kind = resource.address.kind
    if kind == TRAINED and action in {Action.CREATE, Action.NEW_VERSION}:
        return ("version", "run_id", "checkpoint")
    if kind == TRAINED and action is Action.RESUME:
        return ("checkpoint",)
    if kind == "deployment" and action is Action.CREATE:
        return ("revision", "url")
    return ("version",) if kind in VERSIONED and action is Action.NEW_VERSION else ()
