"""`reuse: false`: an experiment that is to be trained although somebody has done the same work.

Equal work is told apart by `rerun`; such an experiment takes the first one that nobody has. Where it only got another
name, it keeps what it had.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.scope import at_rerun, rerun_of
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredResource, ObservedState

Key = tuple[str, int]


def trained_alone(
    resources: Mapping[Address, DesiredResource], observed: ObservedState
) -> dict[Address, DesiredResource]:
    """Experiments that must not share a run, with a `rerun` of their own where they are to be trained now."""
    apart = [at for at, resource in resources.items() if _begins_alone(at, resource, observed)]
    if not apart:
        return {}
    taken = {_key(r) for at, r in resources.items() if at.kind == TRAINED and at not in apart} | {
        *observed.runs
    }
    taken |= {
        (d.fingerprint.run, rerun_of(d.spec)) for at, d in observed.resources.items() if at.kind == TRAINED
    }
    found: dict[Address, DesiredResource] = {}
    for address in sorted(apart):
        resource = resources[address]
        before = _renamed(address, resource, resources, observed)
        while before is None and _key(resource) in taken:
            resource = at_rerun(resource, rerun_of(resource.spec) + 1)
        found[address] = resource if before is None else at_rerun(resource, before)
        taken.add(_key(found[address]))
    return found


def _begins_alone(address: Address, resource: DesiredResource, observed: ObservedState) -> bool:
    if address.kind != TRAINED or resource.spec.get("reuse") is not False:
        return False
    document = observed.resources.get(address)
    return document is None or document.fingerprint.run != resource.fingerprint.run


def _renamed(
    address: Address,
    resource: DesiredResource,
    resources: Mapping[Address, DesiredResource],
    observed: ObservedState,
) -> int | None:
    """The `rerun` of the same work under a name that is gone; None where it is no new name."""
    if address in observed.resources:
        return None
    gone = (d for at, d in observed.resources.items() if at.kind == TRAINED and at not in resources)
    return next((rerun_of(d.spec) for d in gone if d.fingerprint.run == resource.fingerprint.run), None)


def _key(resource: DesiredResource) -> Key:
    return resource.fingerprint.run, rerun_of(resource.spec)
