"""One experiment: its effective manifest and everything it trains on, put together for the platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.repo import compose, inputs, manifests
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.compose import Choice, Composition
from arena_gitops.repo.manifests import Effective
from arena_gitops.repo.resolution import Input, Resolution
from arena_gitops.repo.stored import Renamed, Spans, dumped, envelope, spans_of
from arena_gitops.spec.algorithms import knobs_for
from arena_gitops.spec.classic_knobs import ClassicKnobs
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.job import BaseInput, DatasetInput, EnvironmentInput, JobInputs, ModelRef, RewardInput
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.manifest.environment import GymEnvironment, TextEnvironment
from arena_gitops.spec.manifest.sections import TextNetwork
from arena_gitops.spec.on_change import DISTINCT, distinct_of, known_paths
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.resource import Address
from arena_gitops.state import Blob, DesiredResource

_RENAMED: Renamed = {
    ("budget", "max_runtime"): "budget.max_runtime_s",
    ("base",): "inputs.base",
    ("dataset",): "inputs.dataset",
    ("reward",): "inputs.reward",
    ("environment",): "inputs.environment",
}
_MULTI_TURN = "multi-turn text environments have no room yet"


def composed(catalog: Catalog, entry: Entry) -> tuple[Experiment, Effective, Composition] | None:
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
class ExperimentBuilder:
    """Puts one experiment together from its manifest and what it trains on."""

    resolution: Resolution
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
        """The experiment; None when something it needs could not be resolved, which has been reported."""
        job_inputs = JobInputs(
            dataset=self._dataset(), reward=self._reward(), environment=self._environment(), base=self._base()
        )
        if self.failed:
            return None
        self.paths.append(self.effective.document.file)
        spec = self._spec(job_inputs)
        if self.failed:
            return None
        return DesiredResource(
            address=self.entry.address,
            spec=spec,
            fingerprint=fingerprint_of("experiment", spec, [found for _, found in self.parents]),
            depends_on=tuple(sorted({address for address, _ in self.parents} | self._project())),
            blobs=tuple({blob.digest: blob for blob in self.blobs}.values()),
            span=self.entry.document.span(),
            spans=self._spans(),
            provenance=self.resolution.provenance(self.entry, self.paths),
            parents=tuple(self.parents),
            refusals=self._refusals(),
        )

    def _spec(self, job_inputs: JobInputs) -> dict[str, Any]:
        """`wire.ExperimentSpec` as JSON, its parts being those of other experiments where they are equal.

        Put together by hand: everything in it was validated when it was read, and ten thousand times more is seconds.
        """
        resource, network = self.resource, self.effective.manifest.network
        catalog = self.resolution.catalog
        normals = catalog.normals = catalog.normals or manifests.Normals()
        normal, paths = normals.of(self.effective.manifest)
        model = network.pretrained_model_name_or_path if isinstance(network, TextNetwork) else None
        pin = self._revision(model)
        spec = {
            **envelope(resource),
            "project": self._project_name(),
            "model": None if model is None else ModelRef(id=model, revision=pin).model_dump(mode="json"),
            "tier": resource.tier,
            "num_nodes": resource.num_nodes,
            "budget": {
                "max_runtime_s": resource.budget.max_runtime,
                "max_credits": resource.budget.max_credits,
            },
            "retry": dumped(resource.retry),
            "on_upstream_change": dumped(resource.on_upstream_change),
            "rerun": resource.rerun,
        }
        spec |= dict(_unusual(resource))
        shared = {
            "manifest": normal,
            "defaulted": self.effective.defaulted(paths),
            "inputs": normals.inputs(job_inputs),
        }
        stored = {**catalog.alike.shared(spec), **shared}
        return {**stored, **self._distinct(stored)}

    def _revision(self, model: str | None) -> str | None:
        """The commit that the base model is pinned to."""
        pin = self.resource.model
        if pin is not None and model is None:
            self.failed = True
            span = self.entry.document.span(("model",))
            message = "its manifest names no base model, so there is no revision to pin"
            problem = Diagnostic(message, "no-base-model", span, "Leave `model` out.")
            self.resolution.catalog.problems.append(problem)
        return pin.revision if pin is not None else None

    def _distinct(self, stored: dict[str, Any]) -> dict[str, Any]:
        """What `lifecycle.on_change` adds to what is trained; empty where nothing is named."""
        paths = self.resource.lifecycle.on_change
        found: dict[str, Any] = {}
        for path in paths:
            try:
                found |= distinct_of(stored, [path])
            except KeyError:
                span = self.entry.document.span(("lifecycle", "on_change", path))
                hint = suggestion(path, known_paths(stored))
                message = f"{path!r} is no field of this experiment or its manifest"
                self.resolution.catalog.problems.append(Diagnostic(message, "unknown-path", span, hint))
                self.failed = True
        if paths:
            self.spans[DISTINCT] = self.entry.document.span(("lifecycle", "on_change"))
        return {DISTINCT: found} if found else {}

    def _project_name(self) -> str | None:
        if self.resource.project is not None:
            return self.resource.project.name
        return self.resolution.catalog.stack.project if self.resolution.catalog.stack else None

    def _project(self) -> set[Address]:
        address = Address("project", self._project_name() or "")
        return {address} & self.resolution.built.keys()

    def _dataset(self) -> DatasetInput | None:
        choice = self.composition.dataset
        found = self._input(choice, "dataset")
        if choice is None or found is None or not isinstance(found.value, DatasetInput):
            return None
        pin = choice.ref.digest
        if pin is None or pin == found.value.digest:
            self._take(choice, found)
            return found.value
        if found.value.digest is None:
            self._error(choice, f"{choice.ref}: rows of the hub are pinned by hf.revision, in the Dataset")
            return None
        return self._pinned(choice, found.value, pin)

    def _pinned(self, choice: Choice, current: DatasetInput, pin: str) -> DatasetInput:
        """Earlier content of a dataset: the platform has it, the working tree does not."""
        value = current.model_copy(update={"digest": pin})
        built = self.resolution.built[choice.entry.address]
        spec = {**built.spec, "digest": pin}
        self.parents.append((choice.entry.address, fingerprint_of("dataset", spec, [])))
        absent = f"is pinned to earlier content of {choice.entry.address}, which is not in the working tree"
        place = self.resolution.catalog.files.on_disk(choice.entry.file)
        self.blobs.append(Blob(pin, place, 0, absent=absent))
        return value

    def _reward(self) -> RewardInput | None:
        choice = self.composition.reward
        if choice is not None and choice.entry.address not in self.resolution.found:
            self.resolution.resolve(choice.entry)  # a Reward that only the manifest names
        found = self._input(choice, "reward")
        if choice is None or found is None or not isinstance(found.value, RewardInput):
            return None
        return found.value if self._is_current(choice, found) else None

    def _environment(self) -> EnvironmentInput | None:
        choice = self.composition.environment
        found = self._input(choice, "environment")
        if self.composition.gym_id is not None:
            self.spans["inputs.environment"] = self.effective.span("environment", "name")
            return EnvironmentInput(gym_id=self.composition.gym_id, env_config=self._gym_config())
        if choice is None or found is None or not isinstance(found.value, EnvironmentInput):
            return None
        return found.value if self._is_current(choice, found) else None

    def _gym_config(self) -> dict[str, Any]:
        section = self.effective.manifest.environment
        config = section.env_config if isinstance(section, GymEnvironment) else None
        if isinstance(config, str):
            catalog, path = self.resolution.catalog, ("environment", "env_config")
            return inputs.env_config(catalog, self.effective.document, path, config)
        return dict(config or {})

    def _base(self) -> BaseInput | None:
        base = self.resource.base
        if base is None:
            return None
        address = Address("experiment", base.experiment.name)
        parent = self.resolution.built.get(address)
        if parent is None:
            self.failed = True  # its own problems have been reported
            return None
        self.parents.append((address, parent.fingerprint))
        return BaseInput(experiment=base.experiment.name, checkpoint=base.checkpoint, merge=base.merge)

    def _input(self, choice: Choice | None, slot: str) -> Input | None:
        if choice is None:
            return None
        self.spans[f"inputs.{slot}"] = choice.span
        found = self.resolution.found.get(choice.entry.address)
        if found is None:
            self.failed = True  # its own problems have been reported
        return found

    def _is_current(self, choice: Choice, found: Input) -> bool:
        current = self.resolution.built[choice.entry.address].fingerprint.data
        if choice.ref.digest in {None, current}:
            self._take(choice, found)
            return True
        self._error(choice, f"{choice.ref} is not what the repository holds: that is {current}")
        return False

    def _take(self, choice: Choice, found: Input) -> None:
        built = self.resolution.built[choice.entry.address]
        self.parents.append((built.address, built.fingerprint))
        self.paths.extend((choice.entry.file, *found.paths))
        self.blobs.extend(found.blobs)

    def _error(self, choice: Choice, message: str) -> None:
        self.failed = True
        self.resolution.catalog.problems.append(Diagnostic(message, "pinned-version", choice.span))

    def _refusals(self) -> tuple[str, ...]:
        text = isinstance(self.effective.manifest.environment, TextEnvironment)
        multi_turn = (_MULTI_TURN,) if text and self.composition.environment is not None else ()
        return (*self.effective.refusals, *multi_turn, *self._agents())

    def _agents(self) -> Iterator[str]:
        """An environment of the repository and the algorithm agree on how many act."""
        choice = self.composition.environment
        found = self.resolution.found.get(choice.entry.address) if choice is not None else None
        name = self.effective.manifest.algorithm.name
        knobs = knobs_for(name)
        if found is None or not isinstance(found.value, EnvironmentInput):
            return
        if knobs is None or not issubclass(knobs, ClassicKnobs) or found.value.multi_agent == knobs.SEVERAL:
            return
        trains, has = ("several agents", "one") if knobs.SEVERAL else ("one agent", "several")
        hint = " (multi_agent: true is not written)" if knobs.SEVERAL else ""
        yield f"{name} trains {trains}, and {found.value.address} has {has}{hint}"

    def _spans(self) -> Spans:
        """Without a hold on the manifest: ten thousand of them would be kept for a look at one."""
        chosen, overridden = self.spans, self.effective.overridden()
        own, written = spans_of(self.entry, _RENAMED), self.effective.written.spans
        return Spans(lambda: {**chosen, **own, **_in_manifest(written), **_in_manifest(overridden)})


def _unusual(resource: Experiment) -> Iterator[tuple[str, Any]]:
    """Fields that are stored only where somebody has written them: nothing changes for those who did not."""
    written: dict[str, Any] = {
        "trainer": resource.trainer,
        "region": resource.region,
        "priority": resource.priority,
    }
    written |= {"notes": resource.notes, "notify": list(resource.notify)}
    yield from ((name, value) for name, value in written.items() if value)
    if not resource.reuse:
        yield "reuse", False


def _in_manifest(spans: Mapping[str, Span]) -> dict[str, Span]:
    return {f"manifest.{path}": span for path, span in spans.items()}
