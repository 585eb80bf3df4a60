"""Why one resource is, or is not, what the platform has: each part of its fingerprint, and what moved it.

A plan says what happens; an explanation says which fields, files and parents made the difference, also where
nothing follows from it (a stale experiment, a note that changed).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from arena_gitops.plan.classify import classify
from arena_gitops.plan.model import Action, FieldChange, Plan
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.resource import Address, Frozen
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource, DesiredState, ObservedState

PartName = Literal["data", "parents_data", "run", "meta", "parents_meta"]


class Part(Frozen):
    """One hash of a fingerprint, on the platform and in the repository."""

    name: PartName
    old: str | None = None
    new: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the two sides are not the same."""
        return self.old != self.new


class FileChange(Frozen):
    """A file whose content is not what the platform has."""

    path: str
    """of the repository"""
    field: str
    """where the spec holds its digest"""
    old: str | None = None
    new: str


class ParentChange(Frozen):
    """Something a resource builds on, by the hash of its content."""

    address: str
    old: str | None = None
    new: str | None = None

    @property
    def differs(self) -> bool:
        """Whether its content is not what the platform has."""
        return self.old != self.new


class Explanation(Frozen):
    """Everything that is known about one resource on both sides."""

    format_version: Literal["1.0"] = "1.0"
    kind: Literal["arena.explanation"] = "arena.explanation"
    address: str
    version: int | None = None
    """on the platform; None where it does not exist yet"""
    action: Action
    reason: str
    message: str = ""
    parts: tuple[Part, ...]
    fields: tuple[FieldChange, ...] = ()
    files: tuple[FileChange, ...] = ()
    parents: tuple[ParentChange, ...] = ()


def explain(
    address: Address, desired: DesiredState, observed: ObservedState, planned: Plan, *, root: Path
) -> Explanation:
    """Lay the two sides of one resource beside each other; raises KeyError when neither side has it.

    Args:
        address: Of the resource.
        desired: What the repository declares, as it was read.
        observed: What the platform has.
        planned: The plan of the two.
        root: Folder of the repository, to name files by.
    """
    resource, document = desired.resources.get(address), observed.resources.get(address)
    if resource is None and document is None:
        raise KeyError(str(address))
    change = next((change for change in planned.changes if change.at == address), None)
    fields: tuple[FieldChange, ...] = ()
    if resource is not None and document is not None:
        fields = classify(resource, document, cap=observed.max_steps).fields
    return Explanation(
        address=str(address),
        version=document.version if document else None,
        action=change.action if change else Action.NOOP,
        reason=change.reason if change else "unchanged",
        message=change.message if change else "",
        parts=_parts(document.fingerprint if document else None, resource.fingerprint if resource else None),
        fields=fields,
        files=tuple(_files(resource, document, root)) if resource is not None else (),
        parents=tuple(_parents(resource, desired, observed)) if resource is not None else (),
    )


def _parts(old: Fingerprint | None, new: Fingerprint | None) -> tuple[Part, ...]:
    names: tuple[PartName, ...] = ("data", "parents_data", "run", "meta", "parents_meta")
    return tuple(
        Part(name=name, old=getattr(old, name, None), new=getattr(new, name, None)) for name in names
    )


def _files(resource: DesiredResource, document: ResourceDocument | None, root: Path) -> Iterator[FileChange]:
    """Files whose digest the platform's spec does not have at the same place."""
    before = dict(_digests(document.spec)) if document is not None else {}
    paths = {blob.digest: blob.path for blob in resource.blobs}
    for field, digest in _digests(resource.spec):
        if digest in paths and before.get(field) != digest:
            path = paths[digest]
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            yield FileChange(path=name, field=field, old=before.get(field), new=digest)


def _digests(spec: object, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(spec, dict):
        for key, value in spec.items():
            yield from _digests(value, f"{at}.{key}" if at else str(key))
    elif isinstance(spec, str) and spec.startswith("sha256:"):
        yield at, spec


def _parents(
    resource: DesiredResource, desired: DesiredState, observed: ObservedState
) -> Iterator[ParentChange]:
    for address in sorted(resource.depends_on):
        parent, stored = desired.resources.get(address), observed.resources.get(address)
        yield ParentChange(
            address=str(address),
            old=stored.fingerprint.run if stored else None,
            new=parent.fingerprint.run if parent else None,
        )
