"""Versions of the secrets that rewards name, as the platform has them: what there is to compare of a secret.

A value is in no repository and in no plan. What was stored before versions were kept gets them with its next change
of another kind, so that an upgrade of this tool is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from arena_gitops.spec.lifecycle import VALUES_GIVEN
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState


def with_versions(desired: DesiredState, observed: ObservedState) -> DesiredState:
    """The desired state whose rewards say which values of their secrets they are given."""
    found = dict(_versioned(desired, observed))
    return replace(desired, resources={**desired.resources, **found}) if found else desired


def _versioned(desired: DesiredState, observed: ObservedState) -> Iterator[tuple[Address, DesiredResource]]:
    for address, resource in desired.resources.items():
        names = resource.spec.get("secrets") if address.kind == "reward" else None
        document = observed.resources.get(address)
        if not names or (document is not None and _older(resource, document)):
            continue
        if (known := observed.secrets) is not None:
            versions: Any = {name: known.get(name, 0) for name in sorted(names)}
        elif document is not None and VALUES_GIVEN in document.spec:
            versions = document.spec[VALUES_GIVEN]
        else:
            continue
        yield address, replace(resource, spec={**resource.spec, VALUES_GIVEN: versions})


def _older(resource: DesiredResource, document: ResourceDocument) -> bool:
    return VALUES_GIVEN not in document.spec and document.fingerprint == resource.fingerprint
