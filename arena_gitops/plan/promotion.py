"""What will be served, and when: promoting is the server's work, so the plan says it as a note.

A standing choice (`best`, `step_N`) is resolved by the server when the experiment's current run ends; a human
choice (`"@alias"`) waits for people. Neither is a change of this plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.model import Action, Change
from arena_gitops.plan.phase import Phase, numbered, phase_of
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState, ObservedState

DEPLOYMENT = "deployment"


def annotate(changes: Iterable[Change], desired: DesiredState, observed: ObservedState) -> list[Change]:
    """Say on each deployment what the server will do with it once the runs of this plan have ended."""
    changes = list(changes)
    by_address = {change.address: change for change in changes}
    return [_annotated(change, by_address, desired, observed) for change in changes]


def _annotated(
    change: Change, by_address: Mapping[str, Change], desired: DesiredState, observed: ObservedState
) -> Change:
    resource = desired.resources.get(change.at)
    if resource is None or change.at.kind != DEPLOYMENT:
        return change
    experiment = Address(TRAINED, str(resource.spec["experiment"]))
    followed = by_address.get(str(experiment))
    document = observed.resources.get(experiment)
    awaited = _awaited(followed, document)
    note = _note(resource.spec, awaited, document)
    if change.action is Action.NOOP:
        return change.model_copy(update=_state(observed.resources.get(change.at), note, awaited))
    return change.model_copy(update={"notes": (*change.notes, note) if note else change.notes})


def _note(spec: Mapping[str, Any], awaited: str | None, experiment: ResourceDocument | None) -> str:
    checkpoint = str(spec.get("checkpoint", "best"))
    gate = _gate(spec.get("gate"))
    if checkpoint.startswith("@"):
        return f"serves what people mark with alias {checkpoint[1:]}{gate}; only an apply moves it"
    if awaited:
        return f"promote {checkpoint} when {awaited} ends{gate}"
    if experiment is not None and phase_of(experiment) is Phase.COMPLETED:
        return f"promote {checkpoint} of {numbered(experiment)}{gate}"
    return ""


def _awaited(followed: Change | None, document: ResourceDocument | None) -> str | None:
    """What has to end before a standing choice can be resolved; None when nothing is in flight."""
    if followed is not None and followed.action in {Action.CREATE, Action.NEW_VERSION}:
        return "the new version" if document else "v1"
    going_on = followed is not None and followed.action is Action.RESUME
    if document is not None and (going_on or phase_of(document).in_flight):
        return numbered(document)
    return None


def _state(document: ResourceDocument | None, note: str, awaited: str | None) -> dict[str, object]:
    """What an unchanged deployment shows: nothing while it serves what it should, else why it does not."""
    status = document.deployment if document else None
    if status is None or document is None:
        return {}
    alias = str(document.spec.get("checkpoint", "")).startswith("@")
    match status.state:
        case "held" | "failed":
            reason = f"deployment_{status.state}"
            return {"action": Action.HELD, "reason": reason, "message": status.message or status.state}
        case "pending" if alias:
            return {"action": Action.PENDING, "reason": "human_choice", "message": status.message or note}
        case "serving":
            return {"message": note if awaited and not alias else ""}
        case _:
            return {"message": f"{status.state}: {note or status.message}".rstrip(": ")}


def _gate(gate: Mapping[str, Any] | None) -> str:
    if not gate:
        return ""
    parts = []
    if gate.get("min") is not None:
        parts.append(f"{gate.get('metric', 'eval/reward')} ≥ {gate['min']:g}")
    if gate.get("min_delta") is not None:
        parts.append(f"better by {gate['min_delta']:g}")
    return f" (gate {' and '.join(parts)})" if parts else ""
