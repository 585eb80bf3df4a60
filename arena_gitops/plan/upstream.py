"""New dataset content does not spend money by itself: experiments that only follow it become *stale*.

`settle` decides, per experiment and by its `on_upstream_change`, whether new content of an input leads to a
new version. Where it does not, the experiment keeps the input (and the fingerprint) it was trained with, so
that plan and apply see an unchanged experiment and people see a stale one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from arena_gitops.plan.classify import TRAINED, spec_at, unchanged
from arena_gitops.plan.diff import diff
from arena_gitops.plan.phase import numbered
from arena_gitops.plan.scope import Scope, at_rerun, rerun_of, with_reruns
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.lifecycle import FieldClass, field_class
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

WHOLE = Scope()
ON_CHANGE: Mapping[str, str] = MappingProxyType(
    {"dataset": "stale", "reward": "new_version", "environment": "new_version"}
)
"""What new content of an input does to the experiments that use it, unless they say otherwise."""


@dataclass(frozen=True, slots=True)
class Stale:
    """An experiment that is held back: the reason, and the inputs that moved on."""

    message: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """The desired state apply works on, and the experiments that were held back with the reason."""

    desired: DesiredState
    stale: Mapping[Address, Stale] = field(default_factory=lambda: MappingProxyType({}))


def settle(desired: DesiredState, observed: ObservedState, scope: Scope = WHOLE) -> Settled:
    """Hold back experiments whose only difference in training is new content of an input.

    What `scope` asks to be trained again is not held back. `rerun` only ever rises while the work is the same:
    taking the line out of the file, or having asked on the command line, starts nothing.
    """
    desired = with_reruns(scope, desired, observed)
    resources = dict(desired.resources)
    stale: dict[Address, Stale] = {}
    for address, resource in desired.resources.items():
        document = observed.resources.get(address)
        if address.kind != TRAINED or document is None or unchanged(resource, document):
            continue
        if slots := _only_upstream(resource, document, frozenset(scope.rerun_stale)):
            resources[address] = _kept(resource, document, slots)
            shown = [slot for slot in slots if _policy(resource, slot) == "stale"]
            if shown:
                stale[address] = _stale(resource, document, shown)
        if resources[address].fingerprint.run == document.fingerprint.run:
            resources[address] = at_rerun(resources[address], rerun_of(document.spec))
    return Settled(replace(desired, resources=resources), stale)


def _only_upstream(
    resource: DesiredResource, document: ResourceDocument, again: frozenset[str]
) -> tuple[str, ...]:
    """Inputs with new content, if they explain everything that would be trained differently."""
    slots: set[str] = set()
    for difference in diff(document.spec, resource.spec):
        if field_class(TRAINED, difference.dotted) is not FieldClass.SEMANTIC:
            continue
        slot = _slot(difference.path)
        if slot is None or _policy(resource, slot) == "new_version" or not _same(resource, document, slot):
            return ()
        if spec_at(resource.spec, f"inputs.{slot}.address") in again:
            return ()
        slots.add(slot)
    return tuple(sorted(slots))


def _slot(path: tuple[str, ...]) -> str | None:
    return path[1] if len(path) > 2 and path[0] == "inputs" and path[1] in ON_CHANGE else None


def _same(resource: DesiredResource, document: ResourceDocument, slot: str) -> bool:
    path = f"inputs.{slot}.address"
    address = spec_at(resource.spec, path)
    return address is not None and address == spec_at(document.spec, path)


def _policy(resource: DesiredResource, slot: str) -> str:
    return str(spec_at(resource.spec, f"on_upstream_change.{slot}") or ON_CHANGE[slot])


def _kept(resource: DesiredResource, document: ResourceDocument, slots: tuple[str, ...]) -> DesiredResource:
    inputs: dict[str, Any] = {**resource.spec["inputs"]}
    trained_with: Any = document.spec["inputs"]
    inputs.update({slot: trained_with[slot] for slot in slots})
    old = document.fingerprint
    return replace(
        resource,
        spec={**resource.spec, "inputs": inputs},
        fingerprint=Fingerprint(
            data=old.data,
            meta=resource.fingerprint.meta,
            parents_data=old.parents_data,
            parents_meta=resource.fingerprint.parents_meta,
        ),
    )


def _stale(resource: DesiredResource, document: ResourceDocument, slots: list[str]) -> Stale:
    inputs = tuple(str(spec_at(resource.spec, f"inputs.{slot}.address")) for slot in slots)
    trained = f"{numbered(document)} was trained on earlier content of {', '.join(inputs)}"
    return Stale(f"{trained}; not trained again by default", inputs)
