"""Who uses what on a platform, read from stored specs: what is removed goes before what it builds on.

The repository says the same of what it declares; of what it no longer declares only the platform knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument

SLOTS = ("dataset", "reward", "environment")


def used_by(document: ResourceDocument) -> frozenset[Address]:
    """What a stored resource builds on; also what is not, or not any more, on the platform."""
    spec: Mapping[str, Any] = document.spec
    named: list[tuple[str, Any]] = []
    if document.kind == "deployment":
        named.append(("experiment", spec.get("experiment")))
    if document.kind == "experiment":
        inputs: Mapping[str, Any] = spec.get("inputs") or {}
        parts = {slot: inputs.get(slot) or {} for slot in (*SLOTS, "base")}
        named += [("project", spec.get("project")), ("experiment", parts["base"].get("experiment"))]
        named += [(slot, str(parts[slot].get("address") or "").partition("/")[2]) for slot in SLOTS]
    return frozenset(Address(kind, str(name)) for kind, name in named if name)


def users(resources: Mapping[Address, ResourceDocument]) -> dict[Address, frozenset[Address]]:
    """Address → what builds on it directly, of everything a stack has."""
    found: dict[Address, set[Address]] = {}
    for address, document in resources.items():
        for parent in used_by(document):
            found.setdefault(parent, set()).add(address)
    return {address: frozenset(above) for address, above in found.items()}


def going_first(
    address: Address, removed: frozenset[Address], known: Mapping[Address, frozenset[Address]]
) -> tuple[str, ...]:
    """Of what is removed in the same plan, what must be gone before this is."""
    return tuple(sorted(str(user) for user in known.get(address, frozenset()) & removed))
