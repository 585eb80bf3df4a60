"""A deployment: which checkpoint of which experiment is served, and what it must reach first."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from arena_gitops.spec.checkpoint import Choice
from arena_gitops.spec.fields import CheckpointText, RefField
from arena_gitops.spec.numbers import Bool, Float
from arena_gitops.spec.references import Reference, Referring
from arena_gitops.spec.resource import Frozen

_NUMBER: dict[str, JsonValue] = {"type": ["number", "string"]}


class Gate(Frozen):
    """What a checkpoint must reach before traffic moves to it."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["min"], "properties": {"min": _NUMBER}},
                {"required": ["min_delta"], "properties": {"min_delta": _NUMBER}},
            ]
        }
    )

    metric: Annotated[str, Field(min_length=1)] = "eval/reward"
    min: Float | None = None
    min_delta: Float | None = None
    """better than what serves now by at least this; only where rewards and evaluation rows are the same"""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.min is None and self.min_delta is None:
            raise ValueError("a gate needs 'min', 'min_delta' or both")
        return self


class Strategy(Frozen):
    """How traffic moves to a new revision."""

    type: Literal["recreate", "blue_green"] = "blue_green"
    auto_rollback: Bool = True


class Deployment(Referring):
    """A served model."""

    kind: Literal["Deployment"]
    experiment: RefField
    checkpoint: CheckpointText = "best"
    gate: Gate | None = None
    strategy: Strategy = Strategy()
    tier: str | None = None

    @property
    def choice(self) -> Choice:
        """The checkpoint it asks for."""
        return Choice.parse(self.checkpoint)

    def references(self) -> tuple[Reference, ...]:
        """The experiment whose checkpoint is served."""
        return (Reference(("experiment",), "experiment", self.experiment),)
