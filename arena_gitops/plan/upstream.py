"""What an experiment is compared with, once everything it builds on is settled.

What keeps an experiment as it was trained: code of an input that only reads differently (comments), defaults that
have moved since, new content of an input that its `on_upstream_change` holds back (it becomes *stale*), and a parent
that is itself kept.
`settle` puts what was trained with into the desired state, so that plan and apply see the same, unchanged thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from types import MappingProxyType
from typing import Any

from arena_gitops.plan.alone import trained_alone
from arena_gitops.plan.classify import TRAINED, spec_at, unchanged
from arena_gitops.plan.cosmetic import REWRITTEN, Pair, settled, trained_content
from arena_gitops.plan.diff import diff
from arena_gitops.plan.frozen import frozen
from arena_gitops.plan.kept import kept
from arena_gitops.plan.phase import numbered
from arena_gitops.plan.scope import Scope, at_rerun, rerun_of, with_reruns
from arena_gitops.plan.secrets import with_versions
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import fingerprint_of
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


def settle(
    desired: DesiredState,
    observed: ObservedState,
    scope: Scope = WHOLE,
    equivalent: Iterable[Pair] = (),
) -> Settled:
    """Hold back what was only rewritten, and experiments whose only difference is new content of an input.

    What `scope` asks to be trained again is not held back. `rerun` only ever rises while the work is the same:
    taking the line out of the file, or having asked on the command line, starts nothing.

    Args:
        desired: What the repository declares.
        observed: What the platform has.
        scope: What a plan was asked to be about.
        equivalent: Files (old and new digest) that were found to behave the same.
    """
    desired = with_versions(with_reruns(scope, desired, observed), observed)
    work = _Settling(desired.resources, observed, frozenset(scope.rerun_stale), frozenset(equivalent))
    for address in desired.resources:
        if address.kind in ON_CHANGE:
            work.input(address)
    for address in _in_order(desired.resources):
        work.experiment(address)
    for address in desired.resources:
        if address.kind not in ON_CHANGE and address.kind != TRAINED:
            work.other(address)
    work.settled.update(trained_alone({**desired.resources, **work.settled}, observed))
    if not work.settled:
        return Settled(desired, work.stale)
    return Settled(replace(desired, resources={**desired.resources, **work.settled}), work.stale)


@dataclass(frozen=True, slots=True)
class _Settling:
    """What has been settled so far; a resource that is not in `settled` is as the repository says."""

    resources: Mapping[Address, DesiredResource]
    observed: ObservedState
    again: frozenset[str]
    equivalent: frozenset[Pair]
    settled: dict[Address, DesiredResource] = field(default_factory=dict)
    stale: dict[Address, Stale] = field(default_factory=dict)

    def input(self, address: Address) -> None:
        document = self.observed.resources.get(address)
        resource = self.resources[address]
        if document is None or unchanged(resource, document):
            return
        resource = _frozen(kept(resource, document), document)
        self._keep(settled(resource, document, self.equivalent))

    def experiment(self, address: Address) -> None:
        resource = self._on_settled_parents(self.resources[address])
        document = self.observed.resources.get(address)
        if document is not None and not unchanged(resource, document):
            resource = _frozen(kept(resource, document), document)
            if slots := self._only_upstream(resource, document):
                shown = [slot for slot in slots if _policy(resource, slot) == "stale"]
                resource = _kept(resource, document, slots)
                if shown:
                    self.stale[address] = _stale(resource, document, shown)
            if resource.fingerprint.run == document.fingerprint.run:
                resource = at_rerun(resource, rerun_of(document.spec))
        self._keep(resource)

    def other(self, address: Address) -> None:
        document = self.observed.resources.get(address)
        if document is not None and not unchanged(self.resources[address], document):
            self._keep(kept(self.resources[address], document))

    def _keep(self, resource: DesiredResource) -> None:
        if resource is not self.resources[resource.address]:
            self.settled[resource.address] = resource

    def _on_settled_parents(self, resource: DesiredResource) -> DesiredResource:
        """The same experiment, made of what its parents were trained with."""
        spec = dict(resource.spec)
        parents = list(resource.parents)
        moved = False
        for place, (address, known) in enumerate(parents):
            parent = self.settled.get(address)
            if parent is None or known != self.resources[address].fingerprint or known == parent.fingerprint:
                continue  # not settled anew, or pinned to content of its own
            parents[place] = (address, parent.fingerprint)
            moved = True
            if address.kind in ON_CHANGE:
                part = _part(spec["inputs"][address.kind], self.resources[address], parent)
                spec["inputs"] = {**spec["inputs"], address.kind: part}
        if not moved:
            return resource
        found = fingerprint_of(TRAINED, spec, [fingerprint for _, fingerprint in parents])
        return replace(resource, spec=spec, fingerprint=found, parents=tuple(parents))

    def _only_upstream(self, resource: DesiredResource, document: ResourceDocument) -> tuple[str, ...]:
        """Inputs with new content, if they explain everything that would be trained differently."""
        slots: set[str] = set()
        for difference in diff(document.spec, resource.spec):
            if field_class(TRAINED, difference.dotted) is not FieldClass.SEMANTIC:
                continue
            slot = _slot(difference.path)
            if (
                slot is None
                or _policy(resource, slot) == "new_version"
                or not _same(resource, document, slot)
            ):
                return ()
            if spec_at(resource.spec, f"inputs.{slot}.address") in self.again:
                return ()
            slots.add(slot)
        return () if self._base_moves(resource) else tuple(sorted(slots))

    def _base_moves(self, resource: DesiredResource) -> bool:
        """Whether an experiment it starts from is itself to be trained anew."""
        for address, fingerprint in resource.parents:
            document = self.observed.resources.get(address)
            if address.kind == TRAINED and (document is None or document.fingerprint.run != fingerprint.run):
                return True
        return False


def _frozen(resource: DesiredResource, document: ResourceDocument) -> DesiredResource:
    spec = frozen(resource, document)
    if spec is None:
        return resource
    parents = [fingerprint for _, fingerprint in resource.parents]
    return replace(resource, spec=spec, fingerprint=fingerprint_of(resource.address.kind, spec, parents))


def _part(part: Mapping[str, Any], before: DesiredResource, now: DesiredResource) -> dict[str, Any]:
    """An input of a job, as the settled resource has it: its content, and without fields it does without."""
    gone = before.spec.keys() - now.spec.keys()
    kept = {key: value for key, value in part.items() if key not in gone}
    kind = now.address.kind
    return {**kept, **trained_content(kind, now.spec)} if kind in REWRITTEN else kept


def _in_order(resources: Mapping[Address, DesiredResource]) -> Iterator[Address]:
    """Experiments, each after those it starts from."""
    experiments = [address for address in resources if address.kind == TRAINED]
    bases = {a: [p for p in resources[a].depends_on if p.kind == TRAINED] for a in experiments}
    if not any(bases.values()):
        return iter(experiments)
    return (address for address in TopologicalSorter(bases).static_order() if address in resources)


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
