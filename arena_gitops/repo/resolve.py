"""From a catalog to desired resources: specs in the shape the platform stores, fingerprints, files to upload."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.repo import compose, inputs, manifests, references
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.compose import Choice, Composition
from arena_gitops.repo.inputs import Found
from arena_gitops.repo.manifests import Effective
from arena_gitops.spec.digest import Fingerprint, fingerprint
from arena_gitops.spec.job import BaseInput, DatasetInput, EnvironmentInput, JobInputs, ModelRef, RewardInput
from arena_gitops.spec.kinds.dataset import Dataset
from arena_gitops.spec.kinds.deployment import Deployment
from arena_gitops.spec.kinds.environment import Environment
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.kinds.project import Project
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.lifecycle import data_part, meta_part
from arena_gitops.spec.manifest.environment import GymEnvironment, TextEnvironment
from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.resource import Address, Resource
from arena_gitops.spec.wire import DeploymentSpec, ExperimentSpec, Gate, Provenance
from arena_gitops.state import Blob, DesiredResource

Renamed = Mapping[tuple[str, ...], str]
"""Path in a document → dotted path in the stored spec, where they differ."""
Input = Found[DatasetInput] | Found[RewardInput] | Found[EnvironmentInput]

_MULTI_TURN = "multi-turn text environments have no room yet"
_ENTRY = "(entry)"
"""What the entry file is called in fingerprints, so that moving or renaming it is no change of the reward."""


def resolve(catalog: Catalog) -> dict[Address, DesiredResource]:
    """Resolve everything that can be; what cannot be has its problems in the catalog."""
    bad = references.check(catalog)
    resolver = _Resolver(catalog)
    for kind in ("project", "dataset", "environment", "reward"):
        for entry in catalog.of(kind):
            resolver.resolve(entry)
    composed = {entry.address: _composed(catalog, entry) for entry in catalog.of("experiment")}
    for entry in references.in_order(catalog):
        found = composed[entry.address]
        if found is not None and entry.address not in bad:
            resolver.experiment(entry, *found)
    for entry in catalog.of("deployment"):
        if entry.address not in bad:
            resolver.resolve(entry)
    return resolver.built


def _composed(catalog: Catalog, entry: Entry) -> tuple[Experiment, Effective, Composition] | None:
    """An experiment's manifest and what it trains on; also of one with a bad reference, for its problems."""
    resource = entry.resource
    if not isinstance(resource, Experiment):
        raise TypeError(f"{entry.address} is no Experiment")
    effective = manifests.effective(catalog, entry, resource)
    if effective is None:
        return None
    composition = compose.compose(catalog, entry, resource, effective)
    return (resource, effective, composition) if composition is not None else None


@dataclass(slots=True)
class _Resolver:
    catalog: Catalog
    built: dict[Address, DesiredResource] = field(default_factory=dict)
    found: dict[Address, Input] = field(default_factory=dict)

    def resolve(self, entry: Entry) -> None:
        match entry.resource:
            case Project() as project:
                spec = {**_envelope(project), "llm_based": project.llm_based}
                self.add(entry, spec, _spans(entry, {}))
            case Dataset() as dataset:
                self.add_input(entry, inputs.dataset(self.catalog, entry, dataset), {("file",): "digest"})
            case Reward() as reward:
                self.add_input(entry, inputs.reward(self.catalog, entry, reward), {("file",): "files"})
            case Environment() as environment:
                renamed: Renamed = {("source",): "files", ("config",): "env_config"}
                self.add_input(entry, inputs.environment(self.catalog, entry, environment), renamed)
            case Deployment() as deployment:
                self.deployment(entry, deployment)

    def add_input(self, entry: Entry, found: Input | None, renamed: Renamed) -> None:
        if found is None:
            return
        self.found[entry.address] = found
        spec = {**_envelope(entry.resource), **found.value.model_dump(mode="json")}
        self.add(entry, spec, _spans(entry, renamed), paths=found.paths, blobs=found.blobs)

    def experiment(
        self, entry: Entry, resource: Experiment, effective: Effective, composition: Composition
    ) -> None:
        made = _ExperimentBuilder(self, entry, resource, effective, composition).build()
        if made is not None:
            self.built[entry.address] = made

    def deployment(self, entry: Entry, resource: Deployment) -> None:
        parent = self.built.get(Address("experiment", resource.experiment.name))
        if parent is None:
            return
        spec = DeploymentSpec(
            **_envelope(resource),
            experiment=resource.experiment.name,
            checkpoint=resource.checkpoint,
            gate=Gate(**resource.gate.model_dump()) if resource.gate else None,
            strategy=resource.strategy.model_dump(mode="json"),
            tier=resource.tier,
        )
        self.add(entry, spec.model_dump(mode="json"), _spans(entry, {}), parents=[parent])

    def add(
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
            depends_on=tuple(sorted(parent.address for parent in parents)),
            blobs=blobs,
            span=entry.document.span(),
            spans=spans,
            provenance=self.provenance(entry, paths),
        )

    def provenance(self, entry: Entry, paths: Iterable[str]) -> Provenance:
        files = self.catalog.files
        checkout = files.checkout
        dirty = any(files.changed(path) for path in (entry.file, *paths))
        return Provenance(repo=checkout.remote, commit=checkout.commit, path=entry.file, dirty=dirty)


@dataclass(slots=True)
class _ExperimentBuilder:
    """Puts one experiment together from its manifest and what it trains on."""

    resolver: _Resolver
    entry: Entry
    resource: Experiment
    effective: Effective
    composition: Composition
    parents: list[tuple[Address, Fingerprint]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    blobs: list[Blob] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    failed: bool = False

    def build(self) -> DesiredResource | None:
        job_inputs = JobInputs(
            dataset=self.dataset(), reward=self.reward(), environment=self.environment(), base=self.base()
        )
        if self.failed:
            return None
        self.paths.append(self.effective.document.file)
        spec = self.spec(job_inputs).model_dump(mode="json")
        return DesiredResource(
            address=self.entry.address,
            spec=spec,
            fingerprint=fingerprint_of("experiment", spec, [found for _, found in self.parents]),
            depends_on=tuple(sorted({address for address, _ in self.parents} | self.project())),
            blobs=tuple({blob.digest: blob for blob in self.blobs}.values()),
            span=self.entry.document.span(),
            spans=self.all_spans(),
            provenance=self.resolver.provenance(self.entry, self.paths),
            refusals=self.refusals(),
        )

    def spec(self, job_inputs: JobInputs) -> ExperimentSpec:
        resource, network = self.resource, self.effective.manifest.network
        return ExperimentSpec(
            **_envelope(resource),
            project=self.project_name(),
            manifest=self.effective.manifest.normal(),
            inputs=job_inputs,
            model=ModelRef(id=network.pretrained_model_name_or_path)
            if isinstance(network, TextNetwork)
            else None,
            tier=resource.tier,
            num_nodes=resource.num_nodes,
            budget={"max_runtime_s": resource.budget.max_runtime, "max_credits": resource.budget.max_credits},
            retry=resource.retry.model_dump(mode="json"),
            on_upstream_change=resource.on_upstream_change.model_dump(mode="json"),
            rerun=resource.rerun,
        )

    def project_name(self) -> str | None:
        if self.resource.project is not None:
            return self.resource.project.name
        return self.resolver.catalog.stack.project if self.resolver.catalog.stack else None

    def project(self) -> set[Address]:
        address = Address("project", self.project_name() or "")
        return {address} & self.resolver.built.keys()

    def dataset(self) -> DatasetInput | None:
        choice = self.composition.dataset
        found = self.input(choice, "dataset")
        if choice is None or found is None or not isinstance(found.value, DatasetInput):
            return None
        pin = choice.ref.digest
        if pin is None or pin == found.value.digest:
            self.take(choice, found)
            return found.value
        if found.value.digest is None:
            self.error(choice, f"{choice.ref}: rows of the hub are pinned by hf.revision, in the Dataset")
            return None
        return self.pinned(choice, found.value, pin)

    def pinned(self, choice: Choice, current: DatasetInput, pin: str) -> DatasetInput:
        """Earlier content of a dataset: the platform has it, the working tree does not."""
        value = current.model_copy(update={"digest": pin})
        built = self.resolver.built[choice.entry.address]
        spec = {**built.spec, "digest": pin}
        self.parents.append((choice.entry.address, fingerprint_of("dataset", spec, [])))
        absent = f"is pinned to earlier content of {choice.entry.address}, which is not in the working tree"
        place = self.resolver.catalog.files.on_disk(choice.entry.file)
        self.blobs.append(Blob(pin, place, 0, absent=absent))
        return value

    def reward(self) -> RewardInput | None:
        choice = self.composition.reward
        if choice is not None and choice.entry.address not in self.resolver.found:
            self.resolver.resolve(choice.entry)  # a Reward that only the manifest names
        found = self.input(choice, "reward")
        if choice is None or found is None or not isinstance(found.value, RewardInput):
            return None
        return found.value if self.is_current(choice, found) else None

    def environment(self) -> EnvironmentInput | None:
        choice = self.composition.environment
        found = self.input(choice, "environment")
        if self.composition.gym_id is not None:
            self.spans["inputs.environment"] = self.effective.span("environment", "name")
            return EnvironmentInput(gym_id=self.composition.gym_id, env_config=self.gym_config())
        if choice is None or found is None or not isinstance(found.value, EnvironmentInput):
            return None
        return found.value if self.is_current(choice, found) else None

    def gym_config(self) -> dict[str, Any]:
        section = self.effective.manifest.environment
        config = section.env_config if isinstance(section, GymEnvironment) else None
        if isinstance(config, str):
            catalog, path = self.resolver.catalog, ("environment", "env_config")
            return inputs.env_config(catalog, self.effective.document, path, config)
        return dict(config or {})

    def base(self) -> BaseInput | None:
        base = self.resource.base
        if base is None:
            return None
        address = Address("experiment", base.experiment.name)
        parent = self.resolver.built.get(address)
        if parent is None:
            self.failed = True  # its own problems have been reported
            return None
        self.parents.append((address, parent.fingerprint))
        return BaseInput(experiment=base.experiment.name, checkpoint=base.checkpoint, merge=base.merge)

    def input(self, choice: Choice | None, slot: str) -> Input | None:
        if choice is None:
            return None
        self.spans[f"inputs.{slot}"] = choice.span
        found = self.resolver.found.get(choice.entry.address)
        if found is None:
            self.failed = True  # its own problems have been reported
        return found

    def is_current(self, choice: Choice, found: Input) -> bool:
        current = self.resolver.built[choice.entry.address].fingerprint.data
        if choice.ref.digest in {None, current}:
            self.take(choice, found)
            return True
        self.error(choice, f"{choice.ref} is not what the repository holds: that is {current}")
        return False

    def take(self, choice: Choice, found: Input) -> None:
        built = self.resolver.built[choice.entry.address]
        self.parents.append((built.address, built.fingerprint))
        self.paths.extend((choice.entry.file, *found.paths))
        self.blobs.extend(found.blobs)

    def error(self, choice: Choice, message: str) -> None:
        self.failed = True
        self.resolver.catalog.problems.append(Diagnostic(message, "pinned-version", choice.span))

    def refusals(self) -> tuple[str, ...]:
        text = isinstance(self.effective.manifest.environment, TextEnvironment)
        multi_turn = (_MULTI_TURN,) if text and self.composition.environment is not None else ()
        return (*self.effective.refusals, *multi_turn)

    def all_spans(self) -> dict[str, Span]:
        renamed: Renamed = {
            ("budget", "max_runtime"): "budget.max_runtime_s",
            ("base",): "inputs.base",
            ("dataset",): "inputs.dataset",
            ("reward",): "inputs.reward",
            ("environment",): "inputs.environment",
        }
        written = {f"manifest.{path}": span for path, span in self.effective.spans().items()}
        return {**self.spans, **_spans(self.entry, renamed), **written}


def fingerprint_of(kind: str, spec: Mapping[str, Any], parents: Iterable[Fingerprint]) -> Fingerprint:
    """Fingerprint of a stored spec. Where a reward's files lie does not count, what is in them does."""
    comparable = dict(spec)
    if kind == "reward":
        comparable = _without_place(comparable)
    if kind == "experiment" and comparable["inputs"]["reward"] is not None:
        reward = _without_place(comparable["inputs"]["reward"])
        comparable["inputs"] = {**comparable["inputs"], "reward": reward}
    return fingerprint(data_part(kind, comparable), meta_part(kind, comparable), parents)


def _without_place(reward: Mapping[str, Any]) -> dict[str, Any]:
    entry = reward["entry"]
    folder = posixpath.dirname(entry) or "."
    files = {
        _ENTRY if path == entry else posixpath.relpath(path, folder): digest
        for path, digest in reward["files"].items()
    }
    return {**reward, "files": files, "entry": _ENTRY}


def _envelope(resource: Resource) -> dict[str, Any]:
    return {
        "description": resource.description,
        "labels": dict(resource.labels),
        "owner": resource.owner,
        "lifecycle": resource.lifecycle.model_dump(mode="json"),
    }


def _spans(entry: Entry, renamed: Renamed) -> dict[str, Span]:
    """Dotted path in the stored spec → where it was written; a list is one value."""
    found: dict[str, Span] = {}
    for path in entry.document.places:
        if not path or path[0] == "set":
            continue
        for length in range(min(len(path), 2), 0, -1):
            if name := renamed.get(tuple(map(str, path[:length]))):
                found[".".join((name, *map(str, path[length:])))] = entry.document.span(path)
                break
        else:
            found[".".join(map(str, path))] = entry.document.span(path)
    return found
