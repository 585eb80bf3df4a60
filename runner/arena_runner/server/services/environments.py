"""Environments by name and version, as commands speak of them.

The resource `environment/NAME` holds the latest version, like one that a repository declares: by its files' digests.
So an environment of a repository is listed and checked here too, under `vN`, and changed nowhere but there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import EnvironmentInput
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative
from arena_runner.server.services.imperative import OWNER, STACK
from arena_runner.server.store.environments import EnvironmentVersionRow
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

LABEL = "arena.version"
"""Label of the resource that says which version it holds."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an environment."""

    name: str
    """as people wrote it"""
    label: str
    source: EnvironmentInput
    description: str = ""
    language: bool = False
    validated: bool = False
    profiled: bool = False

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.label}"


def versions(session: Session, row: ResourceRow) -> list[Version]:
    """Every version of a living environment, the oldest first."""
    name = imperative.shown(row)
    found = [_read(name, one) for one in _rows(session, row.name)]
    if row.stack != STACK:
        declared = _declared(name, row)
        same = [one for one in found if (one.label, one.source) == (declared.label, declared.source)]
        return same or [declared]
    return found


def get(session: Session, name: str, label: str | None = None) -> Version:
    """A version, the latest unless one is named; 404 with what there is."""
    row = imperative.find(session, "environment", name)
    if row is None:
        there = ", ".join(imperative.shown(one) for one in imperative.living(session, "environment"))
        raise _not_found(f"environment {name!r} not found on this server; there are: {there or 'none'}")
    found = versions(session, row)
    chosen = next((one for one in reversed(found) if label in {None, one.label}), None)
    if chosen is None:
        there = ", ".join(one.label for one in found)
        raise _not_found(f"environment {name!r} has no version {label!r}; there are: {there}")
    return chosen


def create(world: World, wanted: Version) -> Version:
    """Keep a version; one that was not found valid may be replaced, any other only repeated."""
    with world.store.read() as session:
        row = imperative.find(session, "environment", wanted.name)
        imperative.check_ours(row)
        known = next((v for v in versions(session, row) if v.label == wanted.label), None) if row else None
    if known is not None and known.source == wanted.source:
        return known
    if known is not None and known.validated:
        message = f"environment {known.title} exists with other content; choose another --version"
        raise RefusedError(409, "exists", message)
    _put(world, wanted)
    with world.store.write() as session:
        _keep(session, world, wanted)
    return wanted


def mark(world: World, version: Version, *, validated: bool, profiled: bool, report: dict[str, Any]) -> None:
    """Remember what a check has found, unless the version has become another in the meantime."""
    with world.store.write() as session:
        row = _row(session, version)
        if row is None or EnvironmentInput.model_validate(row.spec) != version.source:
            if imperative.find(session, "environment", version.name) is None:
                return
            row = _keep(session, world, version)
        row.validated, row.profiled, row.report = validated, profiled, report
        row.updated = world.clock()


def delete(world: World, name: str, label: str | None) -> None:
    """Forget a version, or all of them; with the last one the environment is gone."""
    with world.store.write() as session:
        row = imperative.get(session, "environment", get(session, name, label).name)
        imperative.check_ours(row)
        for one in _rows(session, row.name):
            if label in {None, one.label}:
                session.delete(one)
        session.flush()
        left = versions(session, row)
    if left:
        _put(world, left[-1])
    else:
        imperative.retire(world, "environment", name)


def duplicate(world: World, name: str, label: str | None, new: str) -> Version:
    """The same content under another version; gives the one it was copied from."""
    with world.store.read() as session:
        source = get(session, name, label)
        imperative.check_ours(imperative.find(session, "environment", name))
        taken = {one.label for one in versions(session, imperative.get(session, "environment", name))}
    if new in taken:
        raise RefusedError(409, "exists", f"environment {source.name!r} has a version {new!r} already")
    copy = Version(
        source.name,
        new,
        source.source,
        source.description,
        source.language,
        source.validated,
        source.profiled,
    )
    _put(world, copy)
    with world.store.write() as session:
        _keep(session, world, copy)
    return source


def _put(world: World, version: Version) -> None:
    labels = {**imperative.labels(version.name), LABEL: version.label}
    envelope = {"description": version.description, "labels": labels, "owner": None, "lifecycle": {}}
    spec = {**envelope, **version.source.model_dump(mode="json")}
    imperative.put(world, "environment", version.name, spec)


def _keep(session: Session, world: World, version: Version) -> EnvironmentVersionRow:
    row, now = _row(session, version), world.clock()
    if row is None:
        name = imperative.slug(version.name)
        row = EnvironmentVersionRow(namespace=OWNER.namespace, environment=name, label=version.label)
        row.position = 1 + (session.scalar(_of(func.max(EnvironmentVersionRow.position), name)) or 0)
        row.created = now
        session.add(row)
    row.spec, row.description = version.source.model_dump(mode="json"), version.description
    row.language, row.validated, row.profiled = version.language, version.validated, version.profiled
    row.report, row.updated = {}, now
    return row


def _row(session: Session, version: Version) -> EnvironmentVersionRow | None:
    key = (OWNER.namespace, imperative.slug(version.name), version.label)
    return session.get(EnvironmentVersionRow, key)


def _rows(session: Session, name: str) -> Iterable[EnvironmentVersionRow]:
    return list(session.scalars(_of(EnvironmentVersionRow, name).order_by(EnvironmentVersionRow.position)))


def _of(what: Any, name: str) -> Any:
    query = select(what).where(EnvironmentVersionRow.namespace == OWNER.namespace)
    return query.where(EnvironmentVersionRow.environment == name)


def _read(name: str, row: EnvironmentVersionRow) -> Version:
    source = EnvironmentInput.model_validate(row.spec)
    return Version(name, row.label, source, row.description, row.language, row.validated, row.profiled)


def _declared(name: str, row: ResourceRow) -> Version:
    """What a repository declares, as a version."""
    fields = {key: value for key, value in row.spec.items() if key in EnvironmentInput.model_fields}
    return Version(
        name,
        f"v{row.version}",
        EnvironmentInput.model_validate(fields),
        str(row.spec.get("description") or ""),
    )


def _not_found(message: str) -> RefusedError:
    return RefusedError(404, "not-found", message)
