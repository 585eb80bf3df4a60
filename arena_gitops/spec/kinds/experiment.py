"""An experiment: a manifest, what it trains on, where it starts, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from arena_gitops.spec.fields import (
    CHANGED_PATTERN,
    OVERRIDE_PATTERN,
    REVISION_PATTERN,
    VERSION_PATTERN,
    CheckpointText,
    Duration,
    RefField,
    RepoPath,
)
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.references import Reference, Referring
from arena_gitops.spec.resource import Frozen, Lifecycle, Name


class Base(Frozen):
    """Start weights: a checkpoint of another experiment."""

    experiment: RefField
    checkpoint: CheckpointText = "best"
    merge: Annotated[Bool, Field(json_schema_extra={"const": False})] = False
    """fold the adapter into the base model first; has no room yet"""

    @field_validator("merge")
    @classmethod
    def _no_room(cls, value: bool) -> bool:
        if value:
            raise ValueError(
                "merging has no room yet: keep the base's rank and targets, and leave 'merge' out"
            )
        return value


class Budget(Frozen):
    """Ceilings of one run."""

    max_runtime: Duration | None = None
    """written `6h`; seconds here"""
    max_credits: Annotated[Float, Field(ge=0)] | None = None


class Retry(Frozen):
    """What may be tried again without a person."""

    max: Annotated[Int, Field(ge=0)] = 0
    """attempts after the first; platforms retry lost workers a few times in any case"""
    on: tuple[Literal["preempted", "failed"], ...] = ("preempted",)
    """`preempted`: its machine went away; `failed`: its code or its memory failed. Past failures stay held"""


Reaction = Literal["stale", "new_version", "ignore"]


class OnUpstreamChange(Frozen):
    """What follows when something the experiment reads changes: say so, train again, or nothing."""

    dataset: Reaction = "stale"
    reward: Reaction = "new_version"
    environment: Reaction = "new_version"


class ExperimentLifecycle(Lifecycle):
    """What a change means here, where that is more than its field's class says."""

    on_change: dict[Annotated[str, Field(pattern=CHANGED_PATTERN)], Literal["new_version"]] = Field(
        default_factory=dict
    )
    """field → what follows when it changes: `training.max_steps: new_version` trains anew instead of going on"""
    replace_policy: Literal["stop_old", "keep_old"] = "stop_old"
    """what a new version does to a run at work of the one before: stop it, or let it come to its end"""


class PinnedModel(Frozen):
    """The commit of the base model on the hub."""

    revision: Annotated[str, Field(pattern=REVISION_PATTERN)]


_BOTH_SOURCES: dict[str, Any] = {
    "not": {
        "required": ["dataset", "environment"],
        "properties": {"dataset": {"type": "string"}, "environment": {"type": "string"}},
    }
}
_SCORED_ENVIRONMENT: dict[str, Any] = {
    "not": {
        "required": ["reward", "environment"],
        "properties": {"reward": {"type": "string"}, "environment": {"type": "string"}},
    }
}


class Experiment(Referring):
    """A training run as desired state. What the manifest names itself is a default for what is absent here."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_BOTH_SOURCES, _SCORED_ENVIRONMENT]})

    kind: Literal["Experiment"]
    project: RefField | None = None
    """absent: the project of `arena.yaml`"""
    manifest: RepoPath
    """relative to the document; read verbatim"""
    overrides: dict[Annotated[str, Field(pattern=OVERRIDE_PATTERN)], JsonValue] = Field(
        default_factory=dict, alias="set"
    )
    """dotted path in the manifest → value; the effective manifest is manifest + set"""
    dataset: RefField | None = None
    environment: RefField | None = None
    reward: RefField | None = None
    base: Base | None = None
    model: PinnedModel | None = None
    """absent: the first run takes the model as it is then, and keeps to that revision"""
    trainer: Annotated[str, Field(pattern=VERSION_PATTERN)] | None = None
    """version of arena-runner that it is to be trained with (`0.3`: any 0.3.x); absent: whichever the platform has"""
    tier: str | None = None
    region: Name | None = None
    """where the tier must be"""
    priority: Annotated[Int, Field(ge=-100, le=100)] = 0
    """among the runs that wait for the same tier; the higher goes first"""
    num_nodes: Annotated[Int, Field(ge=1)] = 1
    budget: Budget = Budget()
    retry: Retry = Retry()
    on_upstream_change: OnUpstreamChange = OnUpstreamChange()
    reuse: Bool = True
    """False: it is trained although an equal run exists"""
    notes: str = ""
    """for people, as long as they like"""
    notify: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """who is named where its run is held: people or channels"""
    lifecycle: ExperimentLifecycle = ExperimentLifecycle()
    rerun: Annotated[Int, Field(ge=0)] = 0
    """raise it to train the same thing once more"""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.dataset is not None and self.environment is not None:
            raise ValueError("expected at most one of 'dataset' and 'environment', got both")
        if self.reward is not None and self.environment is not None:
            raise ValueError("an environment scores by itself: remove 'reward' or name a 'dataset' instead")
        return self

    def references(self) -> tuple[Reference, ...]:
        """Project, dataset, environment, reward and the experiment it starts from."""
        written = [
            Reference((kind,), kind, ref)
            for kind in ("project", "dataset", "environment", "reward")
            if (ref := getattr(self, kind)) is not None
        ]
        if self.base is not None:
            written.append(Reference(("base", "experiment"), "experiment", self.base.experiment))
        return tuple(written)
