"""Resources as the platform stores them, one after the other, each after what it refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.errors import Span
from arena_gitops.repo import inputs
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.inputs import Found
from arena_gitops.repo.stored import Renamed, envelope, spans_of
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.job import DatasetInput, EnvironmentInput, RewardInput
from arena_gitops.spec.kinds.dataset import Dataset
from arena_gitops.spec.kinds.deployment import Deployment
from arena_gitops.spec.kinds.environment import Environment
from arena_gitops.spec.kinds.project import Project
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Best, DeploymentSpec, Gate, Provenance
from arena_gitops.state import Blob, DesiredResource

Input = Found[DatasetInput] | Found[RewardInput] | Found[EnvironmentInput]


@dataclass(slots=True)
class Resolution:
    """What has been resolved so far."""

    catalog: Catalog
    built: dict[Address, DesiredResource] = field(default_factory=dict)
    found: dict[Address, Input] = field(default_factory=dict)

    def resolve(self, entry: Entry) -> None:
        """Resolve a resource that is no Experiment; its problems go to the catalog."""
        match entry.resource:
            case Project() as project:
                spec = {**envelope(project), "llm_based": project.llm_based}
                self._add(entry, spec, spans_of(entry, {}))
            case Dataset() as dataset:
                self._add_input(entry, inputs.dataset(self.catalog, entry, dataset), {("file",): "digest"})
            case Reward() as reward:
                self._add_input(entry, inputs.reward(self.catalog, entry, reward), {("file",): "files"})
            case Environment() as environment:
                renamed: Renamed = {("source",): "files", ("config",): "env_config"}
                self._add_input(entry, inputs.environment(self.catalog, entry, environment), renamed)
            case Deployment() as deployment:
                self._deployment(entry, deployment)

    def _add_input(self, entry: Entry, found: Input | None, renamed: Renamed) -> None:
        if found is None:
            return
        self.found[entry.address] = found
        spec = {**envelope(entry.resource), **found.value.model_dump(mode="json")}
        self._add(entry, spec, spans_of(entry, renamed), paths=found.paths, blobs=found.blobs)

    def _deployment(self, entry: Entry, resource: Deployment) -> None:
        parent = self.built.get(Address("experiment", resource.experiment.name))
        if parent is None:
            return
        spec = DeploymentSpec(
            **envelope(resource),
            experiment=resource.experiment.name,
            checkpoint=resource.checkpoint,
            best=Best(**resource.best.model_dump()) if resource.best else None,
            gate=Gate(**resource.gate.model_dump()) if resource.gate else None,
            strategy=resource.strategy.stored(),
            limits=resource.limits.model_dump(mode="json", exclude_none=True),
            tier=resource.tier,
            engine=resource.engine,
        )
        # as stored before there were any
        unwritten = {name for name in ("limits", "engine", "best") if not getattr(spec, name)}
        self._add(
            entry, spec.model_dump(mode="json", exclude=unwritten), spans_of(entry, {}), parents=[parent]
        )

    def _add(
        self,
        entry: Entry,
        spec: dict[str, Any],
        spans: Mapping[str, Span],
        *,
        parents: Iterable[DesiredResource] = (),
        paths: tuple[str, ...] = (),
        blobs: tuple[Blob, ...] = (),
    ) -> None:
        parents = tuple(parents)
        kind = entry.address.kind
        self.built[entry.address] = DesiredResource(
            address=entry.address,
            spec=spec,
            fingerprint=fingerprint_of(kind, spec, [parent.fingerprint for parent in parents]),
            parents=tuple((parent.address, parent.fingerprint) for parent in parents),
            depends_on=tuple(sorted(parent.address for parent in parents)),
            blobs=blobs,
            span=entry.document.span(),
            spans=spans,
            provenance=self.provenance(entry, paths),
        )

    def provenance(self, entry: Entry, paths: Iterable[str]) -> Provenance:
        """Where a resource came from; dirty if its document or one of `paths` is not as committed."""
        files = self.catalog.files
        checkout = files.checkout
        dirty = any(files.changed(path) for path in (entry.file, *paths))
        return Provenance(repo=checkout.remote, commit=checkout.commit, path=entry.file, dirty=dirty)
