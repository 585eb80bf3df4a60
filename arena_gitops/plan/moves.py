"""Renames: a name that is gone and a name that is new, and the same thing behind both.

Where exactly one pair has the same content, that is a move: the new name takes over result and run, the old one is
forgotten afterwards, nothing is trained. `moved:` in arena.yaml says it where it cannot be seen. A deployment is
never moved: its name is its address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from arena_gitops.plan.classify import TRAINED, VERSIONED, spec_at
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.state import DesiredState, ObservedState


def moves(desired: DesiredState, observed: ObservedState) -> Mapping[Address, Address]:
    """New address → the old one whose place it takes."""
    new = [a for a in desired.resources if a not in observed.resources and a.kind in VERSIONED]
    gone = [a for a in observed.resources if a not in desired.resources and a.kind in VERSIONED]
    found = {to: old for to, old in desired.moved.items() if to in new and old in gone}
    before: dict[tuple[str, str], list[Address]] = defaultdict(list)
    after: dict[tuple[str, str], list[Address]] = defaultdict(list)
    for address in gone:
        if address not in found.values():
            before[_identity(address, observed.resources[address].fingerprint)].append(address)
    for address in new:
        if address not in found:
            after[_identity(address, desired.resources[address].fingerprint)].append(address)
    for identity, candidates in after.items():
        if len(candidates) == len(before[identity]) == 1:
            found[candidates[0]] = before[identity][0]
    return MappingProxyType(
        {to: old for to, old in found.items() if _keeps_protection(to, old, desired, observed)}
    )


def renamed_with_edits(
    address: Address, desired: DesiredState, observed: ObservedState, known: Iterable[Address]
) -> Address | None:
    """The old name of a new resource, if its file declared exactly one of its kind that is gone: a rename, perhaps."""
    file = desired.resources[address].provenance.path
    moved = frozenset(known)
    gone = [
        old
        for old, document in observed.resources.items()
        if old.kind == address.kind
        and old not in desired.resources
        and old not in moved
        and file is not None
        and document.provenance.path == file
    ]
    return gone[0] if len(gone) == 1 and address.kind == TRAINED else None


def _identity(address: Address, fingerprint: Fingerprint) -> tuple[str, str]:
    return address.kind, fingerprint.run if address.kind == TRAINED else fingerprint.data


def _keeps_protection(to: Address, old: Address, desired: DesiredState, observed: ObservedState) -> bool:
    protected = spec_at(observed.resources[old].spec, "lifecycle.protect") is True
    return not protected or spec_at(desired.resources[to].spec, "lifecycle.protect") is True
