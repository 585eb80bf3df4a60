"""What will be served, and when: promoting is the server's work, so the plan says it as a note.

A standing choice (`best`, `step_N`) is resolved by the server when the experiment's current run ends: no change of
this plan. A human choice (`"@alias"`) waits for people; once they have chosen something new, taking it over is a
change like any other, since only an apply moves its traffic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from arena_gitops.plan import limits
from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.model import Action, Change
from arena_gitops.plan.phase import Phase, numbered, phase_of
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import AliasChoice, DeploymentStatus, Hold, ResourceDocument
from arena_gitops.state import DesiredState, ObservedState

DEPLOYMENT = "deployment"


def annotate(changes: Iterable[Change], desired: DesiredState, observed: ObservedState) -> list[Change]:
    """Say on each deployment what the server will do with it once the runs of this plan have ended."""
    changes = _served_stale(list(changes), observed)
    by_address = {change.address: change for change in changes}
    told = [_annotated(change, by_address, desired, observed) for change in changes]
    return [limits.deployed_later(change, by_address, desired, observed) for change in told]


def _served_stale(changes: list[Change], observed: ObservedState) -> list[Change]:
    """Say on each stale experiment which deployments serve its run: nothing is done about them either."""
    if all(change.action is not Action.STALE for change in changes):
        return changes
    serving: dict[str, list[Address]] = defaultdict(list)
    for address, document in observed.resources.items():
        status = document.deployment
        if status is not None and status.revision and status.run_id:
            serving[status.run_id].append(address)

    def lines(change: Change) -> tuple[str, ...]:
        document = observed.resources.get(change.at)
        run = document.run if document is not None else None
        served = serving.get(run.run_id, ()) if run is not None else ()
        return tuple(f"{address} serves it, and goes on doing so" for address in sorted(served))

    return [
        c.model_copy(update={"notes": (*c.notes, *lines(c))}) if c.action is Action.STALE else c
        for c in changes
    ]


def _annotated(
    change: Change, by_address: Mapping[str, Change], desired: DesiredState, observed: ObservedState
) -> Change:
    resource = desired.resources.get(change.at)
    if (
        resource is None
        or change.at.kind != DEPLOYMENT
        or (change.action is Action.IMPORT and not change.fields)
    ):
        return change
    experiment = Address(TRAINED, str(resource.spec["experiment"]))
    followed = by_address.get(str(experiment))
    document = observed.resources.get(experiment)
    awaited = _awaited(followed, document)
    back = followed is not None and followed.action is Action.REUSE and document is not None
    note = _rollback(resource.spec) if back else _note(resource.spec, awaited, document)
    if change.action is Action.NOOP:
        current = observed.resources.get(change.at)
        status = current.deployment if current else None
        if status is not None and status.hold is None and (choice := _new_choice(status)) is not None:
            return _promoted(change, choice, status, document)
        return change.model_copy(update=_state(current, note, coming=back or awaited is not None))
    return change.model_copy(update={"notes": (*change.notes, note) if note else change.notes})


def _rollback(spec: Mapping[str, Any]) -> str:
    """The repository goes back to work that was done before: only the gate's minimum and the probe have a say."""
    checkpoint, gate = _rule(spec), dict(spec.get("gate") or {})
    if checkpoint.startswith("@"):
        return _note(spec, None, None)
    least = gate.get("min")
    asked = f"; gate {gate.get('metric', 'eval/reward')} ≥ {least:g}" if least is not None else ""
    return f"promote {checkpoint} of the run it goes back to (rollback: nothing is trained{asked})"


def _note(spec: Mapping[str, Any], awaited: str | None, experiment: ResourceDocument | None) -> str:
    checkpoint = _rule(spec)
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


def _state(document: ResourceDocument | None, note: str, *, coming: bool) -> dict[str, object]:
    """What an unchanged deployment shows: nothing while it serves what it should, else why it does not."""
    status = document.deployment if document else None
    if status is None or document is None:
        return {}
    alias = str(document.spec.get("checkpoint", "")).startswith("@")
    if (special := _of_people(status, document.name)) is not None:
        return special
    match status.state:
        case "held" | "failed":
            reason = f"deployment_{status.state}"
            return {"action": Action.HELD, "reason": reason, "message": status.message or status.state}
        case "pending" if alias:
            return {"action": Action.PENDING, "reason": "human_choice", "message": status.message or note}
        case "serving":
            return {"message": note if coming and not alias else ""}
        case _:
            return {"message": f"{status.state}: {note or status.message}".rstrip(": ")}


def _of_people(status: DeploymentStatus, name: str) -> dict[str, object] | None:
    """What somebody's rollback or alias makes of it; None where neither has a say."""
    if status.hold is not None:
        return {"action": Action.HELD, "reason": "deployment_rolled_back", "message": held(status.hold, name)}
    choice = status.choice
    if choice is None or not choice.message or status.state not in {"serving", "pending"}:
        return None
    if status.state == "pending" and choice.known:
        return {"action": Action.PENDING, "reason": "human_choice", "message": choice.message}
    return {"message": choice.message}


def held(hold: Hold, name: str) -> str:
    """What a rollback means until somebody ends it."""
    return (
        f"≠ held at r{hold.revision}, repo wants r{hold.wanted} (rolled back by {hold.by}); "
        f"arena resume deployment/{name} ends it, and so does a change of its file"
    )


def _new_choice(status: DeploymentStatus) -> AliasChoice | None:
    """What people have chosen and no apply has taken over yet."""
    choice = status.choice
    return choice if choice is not None and choice.digest is not None and not choice.applied else None


def _promoted(
    change: Change, choice: AliasChoice, status: DeploymentStatus, experiment: ResourceDocument | None
) -> Change:
    """The change that moves traffic to what people have chosen."""
    now = f"{status.checkpoint} of {status.run_id}" if status.checkpoint else "nothing"
    where = f"{choice.checkpoint} of {choice.run_id}"
    by = f", set by {choice.by}" if choice.by else ""
    message = (
        f"@{choice.alias} is version {choice.version}{by}: {where} (v{choice.run_version}); {now} serves"
    )
    outdated = experiment is not None and choice.run_version != experiment.version
    warning = (
        f"alias points to v{choice.run_version}, repo is v{experiment.version}"
        if outdated and experiment
        else ""
    )
    etag = change.preconditions.etag
    return change.model_copy(
        update={
            "action": Action.PROMOTE,
            "reason": "alias_moved",
            "message": message,
            "severity": Action.PROMOTE.severity,
            "preconditions": change.preconditions.model_copy(update={"choice": choice.digest}),
            "idempotency_key": sha256_json([change.address, etag, change.fingerprint.new, choice.digest]),
            "notes": (*change.notes, warning) if warning else change.notes,
        }
    )


def _rule(spec: Mapping[str, Any]) -> str:
    """The checkpoint's rule in words."""
    rule, best = str(spec.get("checkpoint", "best")), spec.get("best")
    if not best:
        return rule
    return (
        f"{rule} ({'lowest' if best.get('mode') == 'min' else 'highest'} {best.get('metric', 'eval/reward')})"
    )


def _gate(gate: Mapping[str, Any] | None) -> str:
    if not gate:
        return ""
    parts = []
    if gate.get("min") is not None:
        parts.append(f"{gate.get('metric', 'eval/reward')} ≥ {gate['min']:g}")
    if gate.get("min_delta") is not None:
        parts.append(f"better by {gate['min_delta']:g}")
    return f" (gate {' and '.join(parts)})" if parts else ""
