"""What an experiment trains on: its own references first, then what its manifest names (DESIGN §6).

A reference of the Experiment wins, and a note says so when the manifest names something else. Without one, the
manifest's `environment.name` is a Dataset or Environment of the repository, then a registered Gymnasium id.
"""

from __future__ import annotations

from dataclasses import dataclass

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.repo import documents, gymnasium_ids, inputs
from arena_gitops.repo.catalog import Catalog, Entry
from arena_gitops.repo.files import FileProblemError
from arena_gitops.repo.manifests import Effective
from arena_gitops.spec.job import DatasetCategory
from arena_gitops.spec.kinds.dataset import Dataset
from arena_gitops.spec.kinds.experiment import Experiment
from arena_gitops.spec.kinds.reward import Reward
from arena_gitops.spec.manifest.environment import (
    BanditEnvironment,
    GymEnvironment,
    TextEnvironment,
    unfilled,
)
from arena_gitops.spec.problems import near
from arena_gitops.spec.resource import Address, Ref

_CATEGORIES = {
    None: DatasetCategory.REASONING,
    "sft": DatasetCategory.SFT,
    "preference": DatasetCategory.PREFERENCE,
}
"""The manifest's objective → what its rows must be."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One input of an experiment, and where it was chosen."""

    entry: Entry
    ref: Ref
    span: Span


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything an experiment was found to train on."""

    dataset: Choice | None = None
    reward: Choice | None = None
    environment: Choice | None = None
    gym_id: str | None = None


@dataclass(slots=True)
class _Composer:
    catalog: Catalog
    entry: Entry
    resource: Experiment
    effective: Effective
    failed: bool = False

    def compose(self) -> Composition | None:
        section = self.effective.manifest.environment
        match section:
            case TextEnvironment():
                found = self.text(section)
            case BanditEnvironment():
                found = Composition(dataset=self.own("dataset"), environment=self.own("environment"))
            case GymEnvironment():
                found = self.gym(section)
        return None if self.failed else found

    def text(self, section: TextEnvironment) -> Composition:
        environment = self.own("environment")
        if environment is not None:
            return Composition(environment=environment)
        dataset = self.own("dataset") or (None if self.failed else self.dataset_by_manifest(section))
        if dataset is not None and dataset.entry.address.kind == "environment":
            return Composition(environment=dataset)
        if dataset is not None:
            self.check_category(section, dataset)
            self.check_template(section, dataset)
            self.note_dataset(section, dataset)
        return Composition(dataset=dataset, reward=self.reward(section))

    def gym(self, section: GymEnvironment) -> Composition:
        dataset = self.own("dataset")
        if environment := self.own("environment"):
            if environment.entry.address.name != section.name:
                self.note("environment", environment, "name", section.name)
            return Composition(dataset=dataset, environment=environment)
        span = self.effective.span("environment", "name")
        for kind in ("environment", "dataset"):
            if found := self.catalog.entries.get(Address(kind, section.name)):
                choice = Choice(found, Ref(section.name), span)
                return (
                    Composition(environment=choice) if kind == "environment" else Composition(dataset=choice)
                )
        if gymnasium_ids.is_registered(section.name):
            return Composition(dataset=dataset, gym_id=section.name)
        if not self.is_broken(section.name):
            self.unknown_name(section.name, span, with_gym=True)
        self.failed = True
        return Composition()

    def own(self, kind: str) -> Choice | None:
        """The experiment's own reference to a kind, if it has one that leads somewhere."""
        ref: Ref | None = getattr(self.resource, kind)
        if ref is None:
            return None
        span = self.entry.document.span((kind,))
        found = self.catalog.entries.get(Address(kind, ref.name))
        if found is None:
            self.failed = True  # resolve has reported it already
            return None
        return Choice(found, ref, span)

    def dataset_by_manifest(self, section: TextEnvironment) -> Choice | None:
        if named := section.dataset or section.name:
            field = "dataset" if section.dataset else "name"
            return self.by_name(named, self.effective.span("environment", field))
        if section.dataset_path:
            return self.by_file(section.dataset_path)
        if section.hf_dataset_id:
            return self.by_hub_id(section.hf_dataset_id, self.effective.span("environment", "hf_dataset_id"))
        message = "neither this experiment nor its manifest names a dataset or an environment"
        self.error(self.entry.document.span(), message, "no-dataset", "Write `dataset: NAME`.")
        return None

    def by_name(self, name: str, span: Span) -> Choice | None:
        for kind in ("dataset", "environment"):
            if found := self.catalog.entries.get(Address(kind, name)):
                return Choice(found, Ref(name), span)
        if "/" in name:
            return self.by_hub_id(name, span)
        if not self.is_broken(name):
            self.unknown_name(name, span, with_gym=False)
        self.failed = True
        return None

    def by_hub_id(self, hub_id: str, span: Span) -> Choice | None:
        for entry in self.catalog.of("dataset"):
            resource = entry.resource
            if isinstance(resource, Dataset) and resource.hf is not None and resource.hf.id == hub_id:
                return Choice(entry, Ref(entry.address.name), span)
        hint = f"Declare it: kind: Dataset, with hf: {{id: {hub_id}}} and its column_mapping."
        self.error(span, f"no Dataset of this repository is {hub_id} of the hub", "unknown-dataset", hint)
        return None

    def by_file(self, written: str) -> Choice | None:
        span = self.effective.span("environment", "dataset_path")
        path = self.catalog.files.meant(written, self.effective.document.file)
        for entry in self.catalog.of("dataset"):
            if inputs.file_of(self.catalog, entry) == path:
                return Choice(entry, Ref(entry.address.name), span)
        hint = "Declare it: kind: Dataset, with `file:` and its column_mapping."
        self.error(span, f"no Dataset of this repository has the file {path}", "unknown-dataset", hint)
        return None

    def reward(self, section: TextEnvironment) -> Choice | None:
        if self.resource.reward is not None:
            found = self.own("reward")
            if found is not None and section.reward_file_path is not None:
                self.note_reward(section.reward_file_path, found)
            return found
        if section.reward_file_path is not None:
            return self.reward_by_file(section.reward_file_path, section.reward_fn_name)
        if section.env_type == "rollout" and not self.failed:
            message = "neither this experiment nor its manifest names a reward"
            self.error(self.entry.document.span(), message, "no-reward", "Write `reward: NAME`.")
        return None

    def reward_by_file(self, written: str, function: str | None) -> Choice | None:
        span = self.effective.span("environment", "reward_file_path")
        try:
            path = self.catalog.files.find(written, self.effective.document.file)
        except FileProblemError as problem:
            self.error(span, problem.message, problem.code, problem.hint)
            return None
        for entry in self.catalog.of("reward"):
            resource = entry.resource
            if (
                inputs.file_of(self.catalog, entry) == path
                and isinstance(resource, Reward)
                and function in {None, resource.function}
            ):
                return Choice(entry, Ref(entry.address.name), span)
        bare = documents.bare_reward(path, function or "reward")
        if bare is None or bare.address in self.catalog.entries:
            hint = "Declare it: kind: Reward, with `file:` and `function:`."
            self.error(
                span,
                f"no Reward of this repository is {function or 'reward'} of {path}",
                "unknown-reward",
                hint,
            )
            return None
        if bare.address in self.catalog.broken:
            self.failed = True
            return None
        self.catalog.entries[bare.address] = bare
        return Choice(bare, Ref(bare.address.name), span)

    def check_category(self, section: TextEnvironment, choice: Choice) -> None:
        resource = choice.entry.resource
        wanted = _CATEGORIES[section.objective if section.env_type == "dataset" else None]
        if isinstance(resource, Dataset) and resource.category is not wanted:
            algorithm = self.effective.manifest.algorithm.name
            message = (
                f"{algorithm} trains on {wanted} rows, {choice.entry.address} has {resource.category} rows"
            )
            hint = f"Its category is written at {choice.entry.document.span(('category',))}."
            self.error(choice.span, message, "dataset-category", hint)

    def check_template(self, section: TextEnvironment, choice: Choice) -> None:
        resource = choice.entry.resource
        if section.prompt_template is None or not isinstance(resource, Dataset):
            return
        mapping = resource.column_mapping
        for turn, word in unfilled(section.prompt_template, mapping):
            named = [role for role, column in mapping.items() if column == word]
            match = named[0] if named else near(word, mapping)
            known = ", ".join(f"{{{role}}}" for role in mapping)
            hint = f"Did you mean {{{match}}}?" if match else f"There are: {known}."
            span = self.effective.span("environment", f"prompt_template.{turn}")
            message = f"{{{word}}} is filled by nothing: {choice.entry.address} has no such role"
            literal = f"Braces that are meant as such: {{ {word} }}."
            self.error(span, message, "unknown-placeholder", f"{hint} {literal}")

    def note_dataset(self, section: TextEnvironment, choice: Choice) -> None:
        for field in ("dataset", "name"):
            named: str | None = getattr(section, field)
            if named is not None and named != choice.entry.address.name and self.resource.dataset is not None:
                self.note("dataset", choice, field, named)

    def note_reward(self, written: str, choice: Choice) -> None:
        path = self.catalog.files.meant(written, self.effective.document.file)
        if path != inputs.file_of(self.catalog, choice.entry):
            self.note("reward", choice, "reward_file_path", written)

    def note(self, kind: str, choice: Choice, field: str, named: str) -> None:
        message = (
            f"{self.entry.address} uses {choice.entry.address}, its own {kind}; "
            f"the manifest's environment.{field} {named!r} is not used"
        )
        self.catalog.remark(self.effective.span("environment", field), message, "composition")

    def is_broken(self, name: str) -> bool:
        return any(Address(kind, name) in self.catalog.broken for kind in ("dataset", "environment"))

    def unknown_name(self, name: str, span: Span, *, with_gym: bool) -> None:
        known = [*self.catalog.names("dataset"), *self.catalog.names("environment")]
        match = near(name, known) or (gymnasium_ids.near_id(name) if with_gym else None)
        hint = f"Did you mean {match!r}?" if match else f"There are: {', '.join(known) or 'none'}."
        also = " nor a Gymnasium id" if with_gym else ""
        message = f"{name!r} is no Dataset or Environment of this repository{also}"
        self.error(span, message, "unknown-environment", hint)

    def error(self, span: Span, message: str, code: str, hint: str) -> None:
        self.failed = True
        self.catalog.problems.append(Diagnostic(message, code, span, hint))


def compose(catalog: Catalog, entry: Entry, resource: Experiment, effective: Effective) -> Composition | None:
    """Find what an experiment trains on; None when there is a problem, which the catalog then has."""
    return _Composer(catalog, entry, resource, effective).compose()
