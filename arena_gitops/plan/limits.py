"""What a platform cannot do, applied to a plan: said here, so that no apply finds it out.

The words come with the observed state (`state.Limits`); our own server has no limits and nothing here acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.matrix import Cause
from arena_gitops.plan.model import Action, Change, CheckOutcome, CheckStatus
from arena_gitops.plan.phase import Phase, phase_of
from arena_gitops.plan.safety import Block
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, Limits, ObservedState

DEPLOYMENT = "deployment"
WAITS = "deployed by the first apply after that: on this platform nobody waits for it"


def refused(address: Address, action: Action, observed: ObservedState) -> Block | None:
    """What cannot be made there as it is declared."""
    why = observed.limits.refused.get(address)
    return Block("platform_cannot", why) if why is not None and action.acts else None


def stays(document: ResourceDocument, observed: ObservedState, *, purge: bool) -> Block | None:
    """What `arena destroy` cannot take off there; what a run is doing can be ended everywhere."""
    working = document.run is not None and not document.run.state.ended
    if observed.limits.removes or (working and not purge):
        return None
    return Block("platform_cannot", "nothing is deleted by us on this platform; remove it there by hand")


def waits(cause: Cause, phase: Phase, observed: ObservedState) -> bool:
    """Whether more steps have to wait until a run at work has ended."""
    return cause is Cause.BUDGET_RAISED and phase.in_flight and not observed.limits.raises_in_flight


def deployed_later(
    change: Change, by_address: Mapping[str, Change], desired: DesiredState, observed: ObservedState
) -> Change:
    """A deployment that nobody there would wait with: pending until its run has ended, held by its gate."""
    resource = desired.resources.get(change.at)
    if observed.limits.deploys_ahead or resource is None or not change.action.acts:
        return change
    if change.at.kind != DEPLOYMENT:
        return change
    experiment = Address(TRAINED, str(resource.spec["experiment"]))
    document = observed.resources.get(experiment)
    followed = by_address.get(str(experiment))
    working = followed is not None and followed.action.acts
    if document is None or document.run is None or working or phase_of(document) is not Phase.COMPLETED:
        return _state(change, Action.PENDING, "run_not_ended", f"{_awaited(experiment, document)}; {WAITS}")
    held = _below(resource.spec.get("gate"), document)
    return change if held is None else _state(change, Action.HELD, "gate", held)


def checks(observed: ObservedState, touched: Iterable[DesiredResource]) -> Sequence[CheckOutcome]:
    """What is declared and not acted on, and what goes on there unwanted."""
    limits = observed.limits
    found = [
        CheckOutcome(name="platform", status=CheckStatus.WARN, message=m) for m in _ignored(limits, touched)
    ]
    if limits.leftovers:
        message = f"{'; '.join(limits.leftovers)}: this platform has no call to end it"
        found.append(CheckOutcome(name="leftovers", status=CheckStatus.WARN, message=message))
    return found


def _ignored(limits: Limits, touched: Iterable[DesiredResource]) -> Iterable[str]:
    named = [
        f"{', '.join(limits.unheeded[resource.address])} of {resource.address}"
        for resource in touched
        if resource.address in limits.unheeded
    ]
    if named:
        yield f"not acted on there: {'; '.join(named)}"


def _awaited(experiment: Address, document: ResourceDocument | None) -> str:
    run = document.run if document else None
    if document is None or run is None:
        return f"waits for {experiment}"
    return f"waits for {experiment}, whose run {run.run_id} is {run.state.value}"


def _below(gate: Mapping[str, Any] | None, document: ResourceDocument) -> str | None:
    """Why a gate keeps the best checkpoint out; None where it lets it pass."""
    least = (gate or {}).get("min")
    run = document.run
    if least is None or run is None:
        return None
    if run.best is None or run.best.fitness is None:
        return f"the gate asks for {least:g}, and this platform says no fitness of the checkpoints of {run.run_id}"
    if run.best.fitness >= least:
        return None
    return f"step_{run.best.step}: eval/reward {run.best.fitness:.4g} is below the gate's {least:g}"


def _state(change: Change, action: Action, reason: str, message: str) -> Change:
    """The same as a state: nothing is done about it now."""
    update: dict[str, Any] = {"action": action, "reason": reason, "message": message, "severity": 0}
    return change.model_copy(
        update={**update, "cost": None, "unknown": (), "notes": (), "idempotency_key": None}
    )
