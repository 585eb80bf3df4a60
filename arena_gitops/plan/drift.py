"""Where the platform is not as the repository says, and since when: a plan, read the other way round.

A plan asks what to do; drift asks what happened. A run that a person stopped or that failed, a deployment that is
held, a resource that is gone or differs: each is one line, with the commit it was last applied from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from arena_gitops.plan.model import Action, Base, Change, DriftEntry, Plan
from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState, ObservedState


class Drift(Frozen):
    """Everything that deviates; nothing deviates when `entries` is empty."""

    format_version: Literal["1.0"] = "1.0"
    kind: Literal["arena.drift"] = "arena.drift"
    target: str
    stack: str
    namespace: str
    base: Base
    entries: tuple[DriftEntry, ...] = ()
    unmanaged: int = 0
    """what commands have made in this namespace; never touched, and no drift"""


def drift(planned: Plan, desired: DesiredState, observed: ObservedState) -> Drift:
    """Read a plan of the repository as what has happened to the platform."""
    return Drift(
        target=planned.target,
        stack=planned.stack,
        namespace=planned.namespace,
        base=planned.base,
        entries=tuple(_entries(planned, desired, observed)),
        unmanaged=planned.unmanaged,
    )


def out_of_band(
    changes: Iterable[Change], desired: DesiredState, observed: ObservedState
) -> Iterator[DriftEntry]:
    """What has happened to the platform beside an apply, as far as the two sides of a plan can tell."""
    here = desired.provenance
    for change in changes:
        document = observed.resources.get(change.at)
        if change.action is Action.HELD:
            yield _held(change, desired)
        elif document is None or change.at not in desired.resources or not change.action.acts:
            continue
        elif document.provenance.commit == here.commit and not (here.dirty or document.provenance.dirty):
            message = f"{_what(change)}; {_applied(document, desired)}"
            yield DriftEntry(address=change.address, code="differs", message=message)


def _entries(planned: Plan, desired: DesiredState, observed: ObservedState) -> Iterator[DriftEntry]:
    for change in planned.changes:
        document = observed.resources.get(change.at)
        if change.action is Action.HELD:
            yield _held(change, desired)
        elif not change.action.acts and change.action is not Action.BLOCKED:
            continue
        elif document is None:
            message = "not on the platform: never applied, or removed there"
            yield DriftEntry(address=change.address, code="missing", message=message)
        elif change.at not in desired.resources:
            message = f"on the platform, not in the repository; {_applied(document, desired)}"
            yield DriftEntry(address=change.address, code="not_in_repository", message=message)
        else:
            message = f"{_what(change)}; {_applied(document, desired)}"
            yield DriftEntry(address=change.address, code="differs", message=message)


def _held(change: Change, desired: DesiredState) -> DriftEntry:
    """What waits for a person, and for whom."""
    resource = desired.resources.get(change.at)
    people = ", ".join(resource.spec.get("notify") or ()) if resource is not None else ""
    message = f"{change.message}; tell {people}" if people else change.message
    return DriftEntry(address=change.address, code=change.reason, message=message)


def _what(change: Change) -> str:
    named = [field.path for field in change.fields]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return f"differs in {', '.join(named[:3])}{more}" if named else change.message or "differs"


def _applied(document: ResourceDocument, desired: DesiredState) -> str:
    stored, here = document.provenance, desired.provenance
    if stored.commit is None:
        return "applied from no commit"
    if stored.dirty:
        return f"applied from {stored.commit[:12]} with uncommitted changes"
    if stored.commit == here.commit and not here.dirty:
        return "changed on the platform since it was applied from this commit"
    return f"last applied from {stored.commit[:12]}"
