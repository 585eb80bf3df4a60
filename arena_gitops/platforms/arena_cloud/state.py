"""From names to an observed state: what of the repository is there already, what is not, what cannot be.

Pure. A resource whose name exists has, by the making of names, the content that the repository declares; so its
document is the declaration. What has another content is known to be other and nothing more: it gets a fingerprint
that equals nothing, and for new rows of a dataset an input that differs in these rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from arena_gitops.platforms.arena_cloud import abilities
from arena_gitops.platforms.arena_cloud.names import (
    LONGEST,
    Content,
    VersionName,
    content_of,
    cut,
    dataset_name,
    earlier_rows,
)
from arena_gitops.platforms.arena_cloud.seen import Seen, Version, served
from arena_gitops.spec.digest import Fingerprint, sha256_json
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import KnownRun, Owner, ResourceDocument
from arena_gitops.state import DesiredResource, Limits, ObservedState

NAME = "arena_cloud"
NOT_KEPT = "this platform keeps no content, so what differs cannot be shown"


def observed(
    owner: Owner, book: Mapping[Address, DesiredResource] | None, seen: Seen, lineage: str
) -> ObservedState:
    """Everything `owner` has there, as far as `book` (the declarations) can be found in names.

    Without a book everything is told that has a name of ours; with one, what it declares, and what has to end.
    """
    declared = book or {}
    at = matched(declared, seen)
    names = frozenset(str(version.name) for version in at.values())
    reading = _Reading(owner, declared, seen, at, names, everything=book is None)
    documents = {document_address(d): d for d in reading.documents()}
    return ObservedState(
        platform=NAME,
        lineage=lineage,
        etag=sha256_json([d.model_dump(mode="json") for d in documents.values()]),
        resources=MappingProxyType(dict(sorted(documents.items()))),
        runs=MappingProxyType(dict(reading.known_runs())),
        tiers=seen.tiers,
        balance=seen.balance,
        limits=reading.limits(documents),
    )


def document_address(document: ResourceDocument) -> Address:
    """Which resource a document is of."""
    return Address(document.kind, document.name)


def matched(book: Mapping[Address, DesiredResource], seen: Seen) -> dict[Address, Version]:
    """Experiments whose declared content some version has, under their own name rather than another."""
    by_content: dict[Content, list[Version]] = {}
    for version in seen.versions:
        by_content.setdefault(version.name.content, []).append(version)
    found: dict[Address, Version] = {}
    for address, resource in book.items():
        if address.kind == "experiment" and (same := by_content.get(wanted_content(resource))):
            base = base_of(address.name, seen)
            found[address] = min(same, key=lambda v: (v.name.base != base, v.name.number))
    return found


def wanted_content(resource: DesiredResource) -> Content:
    """What an experiment is declared to train."""
    return content_of(resource.spec, int(resource.spec.get("rerun") or 0))


def base_of(name: str, seen: Seen) -> str:
    """How an experiment's versions begin: a long name was cut to fit the first of them."""
    cuts = (cut(name, LONGEST - len(f"--v{n}-{'0' * 8}-{'0' * 6}-{'0' * 6}")) for n in (1, 10, 100, 1000))
    return next((one for one in cuts if one in seen.bases), name)


@dataclass(frozen=True, slots=True)
class _Reading:
    owner: Owner
    book: Mapping[Address, DesiredResource]
    seen: Seen
    at: Mapping[Address, Version]
    """where each declared experiment is"""
    declared: frozenset[str]
    """the names of these"""
    everything: bool

    def documents(self) -> Iterator[ResourceDocument]:
        for address, resource in self.book.items():
            found = self._document(address, resource)
            if found is not None:
                yield found
        yield from self._undeclared()

    def known_runs(self) -> Iterator[tuple[tuple[str, int], KnownRun]]:
        """Work that is declared and done already, or being done."""
        for address, version in self.at.items():
            resource = self.book[address]
            rerun, run = int(resource.spec.get("rerun") or 0), resource.fingerprint.run
            known = KnownRun(
                run_id=str(version.name),
                fingerprint=run,
                experiment=version.name.base,
                version=version.name.number,
                state=version.state.value,
                fitness=version.row.fitness,
                max_steps=version.max_steps or _steps(resource),
                rerun=rerun,
            )
            yield (run, rerun), known

    def limits(self, documents: Mapping[Address, ResourceDocument]) -> Limits:
        refused: dict[Address, str] = {}
        for address, resource in self.book.items():
            why = abilities.refused(resource) or abilities.twice_deployed(resource, self.book)
            if why is not None:
                refused[address] = why
        unheeded = {a: said for a, r in self.book.items() if (said := abilities.unheeded(r))}
        return Limits(
            refused=MappingProxyType(refused),
            unheeded=MappingProxyType(unheeded),
            unread=MappingProxyType(dict(self._unread(documents))),
            leftovers=tuple(sorted(self._leftovers())),
            raises_in_flight=False,
            removes=False,
            deploys_ahead=False,
            resumes=False,
            adopts=False,
            judges_manifests=True,
        )

    def _document(self, address: Address, resource: DesiredResource) -> ResourceDocument | None:
        match address.kind:
            case "project":
                return self._as_declared(resource) if address.name in self.seen.projects else None
            case "dataset":
                return self._dataset(address, resource)
            case "experiment":
                return self._experiment(address, resource)
            case "deployment":
                return self._deployment(resource)
            case "reward":
                return self._as_declared(resource)  # travels with each submission, and is nowhere by itself
            case _:
                return None

    def _as_declared(
        self, resource: DesiredResource, etag: str | None = None, **more: Any
    ) -> ResourceDocument:
        return ResourceDocument(
            kind=resource.address.kind,
            name=resource.address.name,
            etag=etag or resource.fingerprint.run,
            owner=self.owner,
            fingerprint=more.pop("fingerprint", resource.fingerprint),
            spec=more.pop("spec", dict(resource.spec)),
            provenance=resource.provenance,
            **more,
        )

    def _dataset(self, address: Address, resource: DesiredResource) -> ResourceDocument | None:
        name, others = (
            dataset_name(address.name, resource.spec),
            earlier_rows(address.name, self.seen.datasets),
        )
        if name in others:
            return self._as_declared(resource, etag=name, version=len(others))
        if not others:
            return None
        spec = {**resource.spec, "digest": f"other rows ({', '.join(sorted(others))})", "hf": None}
        etag = ",".join(sorted(others))
        return self._as_declared(
            resource, etag, spec=spec, fingerprint=_other(resource, etag), version=len(others)
        )

    def _experiment(self, address: Address, resource: DesiredResource) -> ResourceDocument | None:
        found = self.at.get(address)
        before = self.seen.bases.get(base_of(address.name, self.seen), ())
        working = [v for v in before if not v.state.ended and str(v.name) not in self.declared]
        if found is not None and not working:
            return self._trained(resource, found)
        if not before:
            return None
        content = wanted_content(resource)
        alike = [v for v in before if v.name.content.work == content.work and v is not found]
        newest = (working or alike or before)[-1]
        same_work = newest.name.content.work == content.work
        spec = _with_other_rows(resource.spec, newest) if same_work else dict(resource.spec)
        other = _other(resource, str(newest.name))
        run = newest.run(address.name, other.run, _steps(resource))
        return self._as_declared(
            resource, newest.etag, spec=spec, fingerprint=other, version=newest.name.number, run=run
        )

    def _trained(self, resource: DesiredResource, version: Version) -> ResourceDocument:
        spec, wanted = dict(resource.spec), _steps(resource)
        asked = version.max_steps
        if (
            asked is not None and asked < wanted
        ):  # fewer than there are cannot be asked for, so is no difference
            training = {**spec["manifest"]["training"], "max_steps": asked}
            spec["manifest"] = {**spec["manifest"], "training": training}
        run = version.run(resource.address.name, resource.fingerprint.run, wanted)
        return self._as_declared(resource, version.etag, spec=spec, version=version.name.number, run=run)

    def _deployment(self, resource: DesiredResource) -> ResourceDocument | None:
        version = self.at.get(Address("experiment", str(resource.spec["experiment"])))
        row = next((row for name, row in self.seen.deployments if version and name == version.name), None)
        if version is None or row is None:
            return None
        rule = row.checkpoint or str(resource.spec["checkpoint"])
        return self._as_declared(
            resource,
            f"{version.name}/{rule}",
            spec={**resource.spec, "checkpoint": rule},
            deployment=served(version.name, row),
        )

    def _undeclared(self) -> Iterator[ResourceDocument]:
        """Work of ours that nothing declares any more: it is forgotten, but what it is doing has to end."""
        bases = {base_of(a.name, self.seen) for a in self.book if a.kind == "experiment"}
        left: dict[str, Version] = {}
        for version in self.seen.versions:
            idle = version.state.ended and not self.everything
            if version.name.base not in bases and not idle and str(version.name) not in self.declared:
                left[version.name.base] = version
        for base, version in left.items():
            made = _unknown(str(version.name))
            yield ResourceDocument(
                kind="experiment",
                name=base,
                etag=version.etag,
                owner=self.owner,
                spec={},
                fingerprint=made,
                version=version.name.number,
                run=version.run(base, made.run, 0),
            )

    def _unread(self, documents: Mapping[Address, ResourceDocument]) -> Iterator[tuple[Address, str]]:
        for address, document in documents.items():
            resource = self.book.get(address)
            if resource is None or document.fingerprint == resource.fingerprint or document.run is None:
                continue
            name = VersionName.parse(document.run.run_id)
            if name is not None:
                work = wanted_content(resource).work
                yield address, f"{name.short} is other work than {work}; {NOT_KEPT}"

    def _leftovers(self) -> Iterator[str]:
        """Deployments that serve on: of versions that were replaced, and of what is declared no more."""
        wanted: dict[str, VersionName | None] = {}
        for address, resource in self.book.items():
            if address.kind == "deployment":
                experiment = Address("experiment", str(resource.spec["experiment"]))
                version = self.at.get(experiment)
                wanted[base_of(experiment.name, self.seen)] = version.name if version else None
        there = {name for name, _ in self.seen.deployments}
        for name, row in self.seen.deployments:
            now = wanted.get(name.base)
            replaced = now is not None and now in there and name != now
            undeclared = name.base not in wanted and name not in wanted.values()
            if replaced or (undeclared and not self.everything):
                yield f"{row.name} goes on serving"


def _other(resource: DesiredResource, what: str) -> Fingerprint:
    """Of content that is not the resource's; what people read of it is taken to be the same."""
    mine = resource.fingerprint
    return _unknown(what).model_copy(update={"meta": mine.meta, "parents_meta": mine.parents_meta})


def _unknown(what: str) -> Fingerprint:
    digest = sha256_json(["content that nobody keeps", what])
    return Fingerprint(data=digest, meta=digest, parents_data=digest, parents_meta=digest)


def _with_other_rows(spec: Mapping[str, Any], version: Version) -> dict[str, Any]:
    dataset = {**spec["inputs"]["dataset"], "digest": f"other rows ({version.name.content.rows})", "hf": None}
    return {**spec, "inputs": {**spec["inputs"], "dataset": dataset}}


def _steps(resource: DesiredResource) -> int:
    return int(resource.spec["manifest"]["training"]["max_steps"])
