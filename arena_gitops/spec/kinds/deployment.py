"""A deployment: which checkpoint of which experiment is served, and what it must reach first."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from arena_gitops.spec.checkpoint import Choice
from arena_gitops.spec.fields import CheckpointText, Duration, RefField
from arena_gitops.spec.numbers import Bool, Float, Int
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


class Best(Frozen):
    """By which figure `checkpoint: best` chooses; the earliest step where several are equal, never one that is no number."""

    metric: Annotated[str, Field(min_length=1)] = "eval/reward"
    mode: Literal["max", "min"] = "max"


class Strategy(Frozen):
    """How traffic moves to a new revision, and what moves it back."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["percent"], "properties": {"percent": _NUMBER}},
            "then": {"required": ["type"], "properties": {"type": {"const": "canary"}}},
        }
    )

    type: Literal["recreate", "blue_green", "canary"] = "blue_green"
    """`recreate` unloads the old revision first; the others load the new one beside it"""
    percent: Annotated[Int, Field(ge=1, le=99)] | None = None
    """of the sessions that a canary answers while it is watched; default 10"""
    watch: Duration = 300.0
    """how long a canary gets its share, and how long a revision that has taken over can still be taken back"""
    max_error_rate: Annotated[Float, Field(ge=0, le=1)] = 0.05
    """share of failed requests above which a watched revision is taken back"""
    min_requests: Annotated[Int, Field(ge=1)] = 20
    """fewer requests than this are judged as if they were as many, so that one failure condemns nobody"""
    max_first_token: Annotated[Float, Field(gt=0)] | None = None
    """seconds: a watched revision whose median stream begins later is taken back"""
    deadline: Duration = 900.0
    """a rollout that has not come to its probe by then is given up"""
    auto_rollback: Bool = True
    """False: a watched revision that does badly is only told of"""

    @model_validator(mode="after")
    def _only_a_canary_has_a_share(self) -> Self:
        if self.percent is not None and self.type != "canary":
            raise ValueError(f"percent is for type canary; {self.type} moves all of the traffic at once")
        return self

    def stored(self) -> dict[str, JsonValue]:
        """As a platform keeps it: type and rollback always, anything else where it is not the default."""
        basic: dict[str, JsonValue] = {"type": self.type, "auto_rollback": self.auto_rollback}
        return basic | self.model_dump(mode="json", exclude_defaults=True)


class Limits(Frozen):
    """How much is asked of it at a time; what is above is refused with a time to come back."""

    concurrent: Annotated[Int, Field(ge=1, le=10_000)] | None = None
    """requests answered at the same time; default: the server's"""
    queue: Annotated[Int, Field(ge=0, le=100_000)] | None = None
    """requests that may wait for their turn; default: the server's"""


class Deployment(Referring):
    """A served model."""

    kind: Literal["Deployment"]
    experiment: RefField
    checkpoint: CheckpointText = "best"
    best: Best | None = None
    """default: the highest fitness"""
    gate: Gate | None = None
    strategy: Strategy = Strategy()
    limits: Limits = Limits()
    tier: str | None = None
    """whose hosts serve it, and at what price; default: the server's first"""
    engine: Literal["torch", "vllm"] | None = None
    """what generates; default: the tier's, else the server's"""

    @property
    def choice(self) -> Choice:
        """The checkpoint it asks for."""
        return Choice.parse(self.checkpoint)

    @model_validator(mode="after")
    def _only_best_is_chosen_by_a_figure(self) -> Self:
        if self.best is not None and self.checkpoint != "best":
            raise ValueError(f"best says how checkpoint: best chooses; this is {self.checkpoint}")
        return self

    def references(self) -> tuple[Reference, ...]:
        """The experiment whose checkpoint is served."""
        return (Reference(("experiment",), "experiment", self.experiment),)
