"""Desired and observed state in, a plan out: the one function that knows every step of planning.

`build` settles upstream changes, classifies each resource, lets the safety rules object, and adds costs and
words. It is pure: the same two states give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from arena_gitops.errors import Diagnostic
from arena_gitops.plan import policy, promotion, sharing
from arena_gitops.plan.adoption import with_imports
from arena_gitops.plan.classify import range_of
from arena_gitops.plan.destruction import Destruction
from arena_gitops.plan.drift import out_of_band
from arena_gitops.plan.estimate import History
from arena_gitops.plan.evidence import NO_EVIDENCE, Evidence
from arena_gitops.plan.links import linked
from arena_gitops.plan.model import (
    Action,
    Base,
    Change,
    CheckOutcome,
    CheckStatus,
    Plan,
    PlanDiagnostic,
    plan_id,
)
from arena_gitops.plan.moves import moves
from arena_gitops.plan.paid_once import paid_once
from arena_gitops.plan.planner import MOVED, Planner
from arena_gitops.plan.scope import Scope, selected
from arena_gitops.plan.totals import costs_of
from arena_gitops.plan.upstream import WHOLE, settle
from arena_gitops.state import DesiredState, ObservedState

COUNTED = (
    Action.CREATE,
    Action.UPDATE,
    Action.NEW_VERSION,
    Action.PROMOTE,
    Action.RESUME,
    Action.CAP,
    Action.MIGRATE,
    Action.REUSE,
    Action.MOVE,
    Action.IMPORT,
    Action.RETIRE,
    Action.DESTROY,
    Action.PENDING,
    Action.HELD,
    Action.STALE,
    Action.BLOCKED,
)


def build(
    desired: DesiredState,
    observed: ObservedState,
    *,
    target: str,
    allow: frozenset[str] = frozenset(),
    scope: Scope = WHOLE,
    evidence: Evidence = NO_EVIDENCE,
) -> Plan:
    """Plan how to make the platform what the repository says.

    Args:
        desired: What the repository declares.
        observed: What the stack owns on the platform.
        target: Name of the target in `arena.yaml`.
        allow: Consents given in advance: `interrupt`, `empty`.
        scope: A part of the stack, and work to be done again.
        evidence: What was found by reading the files of both sides.
    """
    if scope.destroy:
        return _destruction(desired, observed, target, allow, scope)
    seen = with_imports(desired, observed)
    settled = settle(desired, seen, scope, evidence.equivalent)
    moved = moves(settled.desired, seen) if scope.whole else {}
    history = History.of(seen.resources.values(), seen.profiles)
    planner = Planner(settled.desired, seen, settled.stale, allow, scope, moved, history)
    chosen = selected(scope, desired, seen)
    everything = planner.changes(chosen)
    everything = paid_once(everything, settled.desired, seen, history)
    everything = promotion.annotate(everything, settled.desired, seen)
    everything = [linked(evidence.shown_on(change), seen) for change in everything]
    changes = tuple(change for change in everything if change.action is not Action.NOOP or change.message)
    looked_at = chosen if scope.whole else chosen & settled.desired.resources.keys()
    costs = costs_of(changes, settled.desired.resources, seen, looked_at)
    checks = tuple(policy.checks(settled.desired, observed, changes, costs, allow=allow, scope=scope))
    return _plan(
        desired,
        observed,
        target=target,
        scope=scope,
        summary=_summary(everything),
        cost=costs,
        changes=changes,
        drift=() if scope.rerun or scope.rerun_stale else tuple(out_of_band(changes, desired, observed)),
        equivalent=tuple(sorted(evidence.equivalent)),
        checks=checks,
        diagnostics=(
            *(_diagnostic(note) for note in desired.notes),
            *evidence.remarks,
            *sharing.remarks(changes, settled.desired),
        ),
    )


def _destruction(
    desired: DesiredState, observed: ObservedState, target: str, allow: frozenset[str], scope: Scope
) -> Plan:
    work = Destruction(desired, observed, scope)
    changes = work.changes()
    return _plan(
        desired,
        observed,
        target=target,
        scope=scope,
        mode="destroy",
        summary=_summary(changes),
        cost=costs_of(changes, {}, observed, [change.at for change in changes]),
        changes=tuple(changes),
        checks=tuple(work.checks(changes, allow)),
        diagnostics=tuple(_diagnostic(remark) for remark in work.remarks(changes)),
    )


def _plan(
    desired: DesiredState,
    observed: ObservedState,
    *,
    scope: Scope,
    changes: tuple[Change, ...],
    checks: tuple[CheckOutcome, ...],
    **fields: Any,
) -> Plan:
    """Everything that follows from the two states and what was found."""
    owner = desired.owner
    blocked = any(change.action is Action.BLOCKED for change in changes)
    return Plan(
        plan_id=plan_id(
            platform=observed.platform,
            stack=owner.stack,
            namespace=owner.namespace,
            changes=changes,
            checks=checks,
            purge=scope.purge,
        ),
        platform=observed.platform,
        lineage=observed.lineage,
        serial=observed.serial,
        unmanaged=observed.nobodys - sum(change.action is Action.IMPORT for change in changes),
        stack=owner.stack,
        namespace=owner.namespace,
        base=Base(commit=desired.provenance.commit, dirty=desired.provenance.dirty),
        scope=scope,
        complete=scope.whole,
        applyable=not blocked and not any(check.status is CheckStatus.FAIL for check in checks),
        changes=changes,
        checks=checks,
        **fields,
    )


def _summary(changes: Iterable[Change]) -> dict[str, int]:
    counts = dict.fromkeys((action.value for action in COUNTED), 0) | {"unchanged": 0}
    for change in changes:
        if change.action is Action.RETIRE and change.reason == MOVED:
            continue  # counted under its new name
        counts["unchanged" if change.action is Action.NOOP else change.action.value] += 1
    return counts


def _diagnostic(note: Diagnostic) -> PlanDiagnostic:
    return PlanDiagnostic(
        severity=note.severity.value,
        code=note.code,
        message=note.message,
        hint=note.hint,
        range=range_of(note.span),
    )
