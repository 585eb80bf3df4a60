"""Imports: what the platform has and no repository manages is taken over, and nothing is started by it.

An import is compared like anything else. What would train (other work, more of it, another place) stands in its way
unless the entry says `adopt: as_is`: then what the repository says counts as what was trained.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from arena_gitops.plan.classify import TRAINED, Finding
from arena_gitops.plan.matrix import Cause, outcome
from arena_gitops.plan.phase import phase_of
from arena_gitops.plan.safety import Block
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredState, Import, ObservedState

IMPORTED = "import_asked_for"
MORE = frozenset({Cause.BUDGET_RAISED, Cause.CEILING_RAISED, Cause.PLACEMENT})
"""What a run at work would be given later, whatever an import has recorded."""


def importable(desired: DesiredState, observed: ObservedState) -> dict[Address, ResourceDocument]:
    """What this repository imports and does not have yet, as the platform has it."""
    return {
        address: observed.unmanaged[address]
        for address, wanted in desired.imports.items()
        if address in desired.resources
        and address not in observed.resources
        and address in observed.unmanaged
        and wanted.id in {address.name, str(address)}
    }


def with_imports(desired: DesiredState, observed: ObservedState) -> ObservedState:
    """The state to plan with: as if what is imported were ours already."""
    found = importable(desired, observed)
    if not found:
        return observed
    return replace(
        observed,
        resources=MappingProxyType({**observed.resources, **found}),
        foreign=MappingProxyType({a: owner for a, owner in observed.foreign.items() if a not in found}),
    )


def starts(finding: Finding, document: ResourceDocument) -> bool:
    """Whether the difference would have something trained."""
    return document.kind == TRAINED and outcome(finding.cause, phase_of(document)).action.spends


def difference(finding: Finding, document: ResourceDocument, wanted: Import, reason: str) -> Block | None:
    """A difference that would be trained is not taken over unseen."""
    if not starts(finding, document):
        return None
    if wanted.as_is and not (finding.cause in MORE and phase_of(document).in_flight):
        return None
    if wanted.as_is:
        return Block(
            "import_differs",
            f"{reason}, and its run is still at work, which an import leaves as it is: write what was asked for, "
            "and raise or move it afterwards",
        )
    return Block(
        "import_differs",
        f"{reason or 'it differs from what was trained'}, and an import starts nothing: write what was trained "
        f"(arena import {document.kind}/{document.name} {wanted.id}), or add adopt: as_is",
    )


def not_found(address: Address, wanted: Import, observed: ObservedState) -> Block:
    """An import of what is not there, or is called otherwise."""
    if not observed.limits.adopts:
        return Block(
            "platform_cannot", f"nothing can be imported on this platform: take {address} out of imports"
        )
    unmanaged = observed.unmanaged
    there = sorted(str(other) for other in unmanaged if other.kind == address.kind)
    known = (
        ", ".join(there[:5]) + (f" and {len(there) - 5} more" if len(there) > 5 else "") if there else "none"
    )
    return Block(
        "import_not_found",
        f"this platform has no unmanaged {address.kind} {wanted.id!r} to import as {address}; there are: {known}",
    )
