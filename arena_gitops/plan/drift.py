"""Where the platform is not as the repository says, and since when: a plan, read the other way round.

A plan asks what to do; drift asks what happened. A run that a person stopped or that failed, a deployment that is
held, a resource that is gone or differs: each is one line, with the commit it was last applied from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from arena_gitops.plan.cosmetic import CODE, trained_code, trained_rows
from arena_gitops.plan.model import Action, Base, Change, DriftEntry, Plan
from arena_gitops.spec.digest import digests_in
from arena_gitops.spec.resource import Frozen
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState, ObservedState, Unsound

INPUTS = ("dataset", "reward", "environment")


class Drift(Frozen):
    """Everything that deviates; nothing deviates when `entries` is empty, as far as it could be looked at."""

    format_version: Literal["1.0"] = "1.0"
    kind: Literal["arena.drift"] = "arena.drift"
    target: str
    stack: str
    namespace: str
    base: Base
    status: Literal["clean", "drifted", "errored"] = "clean"
    """errored: something could not be looked at, so that nobody knows whether it deviates"""
    entries: tuple[DriftEntry, ...] = ()
    errors: tuple[DriftEntry, ...] = ()
    """what could not be looked at"""
    unmanaged: int = 0
    """what commands have made in this namespace; never touched, and no drift"""


def drift(
    planned: Plan,
    desired: DesiredState,
    observed: ObservedState,
    unsound: Mapping[str, Unsound] = MappingProxyType({}),
) -> Drift:
    """Read a plan of the repository as what has happened to the platform.

    Args:
        planned: The plan.
        desired: What the repository declares.
        observed: What the platform has.
        unsound: Digests that stored resources name, of files that are gone or damaged.
    """
    entries = (*_entries(planned, desired, observed), *_without_files(observed, unsound))
    errors = tuple(_not_seen(observed))
    return Drift(
        status="errored" if errors else "drifted" if entries else "clean",
        target=planned.target,
        stack=planned.stack,
        namespace=planned.namespace,
        base=planned.base,
        entries=entries,
        errors=errors,
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


def stored_files(observed: ObservedState) -> frozenset[str]:
    """Digests of the files that what is trained with is made of."""
    found: set[str] = set()
    for document in observed.resources.values():
        spec: Mapping[str, Any] = document.spec
        if document.kind == "dataset":
            found |= digests_in(trained_rows(spec))
        elif document.kind in CODE:
            found |= digests_in(trained_code(spec))
        elif document.kind == "experiment":
            found |= digests_in({slot: spec["inputs"].get(slot) for slot in INPUTS})
    return frozenset(found)


def _without_files(observed: ObservedState, unsound: Mapping[str, Unsound]) -> Iterator[DriftEntry]:
    """What cannot be trained again, or checked, because the platform has lost a file of it, or has other bytes."""
    if not unsound:
        return
    for address, document in sorted(observed.resources.items()):
        alone = stored_files(replace(observed, resources={address: document}))
        if gone := sorted(alone & unsound.keys()):
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            what = f"{gone[0][:19]}…{more}, which it was stored with"
            damaged = unsound[gone[0]] == "damaged"
            message = (
                f"the bytes of {what}, are others by now" if damaged else f"the platform does not have {what}"
            )
            message = f"integrity: {message}"
            yield DriftEntry(address=str(address), code="integrity", message=message)


def _not_seen(observed: ObservedState) -> Iterator[DriftEntry]:
    """Choices of people that nobody could look up: unknown is not unchanged."""
    for address, document in sorted(observed.resources.items()):
        choice = document.deployment.choice if document.deployment else None
        if choice is not None and not choice.known:
            yield DriftEntry(address=str(address), code="unknown", message=choice.message)


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
