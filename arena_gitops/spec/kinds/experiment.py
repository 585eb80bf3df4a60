"""An experiment: a manifest, what it trains on, where it starts, and what it may cost."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from arena_gitops.spec.fields import OVERRIDE_PATTERN, CheckpointText, Duration, RefField, RepoPath
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.references import Reference, Referring
from arena_gitops.spec.resource import Frozen


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
    tier: str | None = None
    num_nodes: Annotated[Int, Field(ge=1)] = 1
    budget: Budget = Budget()
    retry: Retry = Retry()
    on_upstream_change: OnUpstreamChange = OnUpstreamChange()
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
