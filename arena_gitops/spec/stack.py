"""`arena.yaml`: who this repository is, where it is applied, and what its pull requests may do."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from arena_gitops.spec.fields import RepoPath, SecretName
from arena_gitops.spec.numbers import Bool, Float, Int
from arena_gitops.spec.problems import suggestion
from arena_gitops.spec.resource import Frozen, Name

RESERVED = "imperative"
"""The stack of what commands make by name; no repository may call itself so."""

ROOTS = ("datasets", "environments", "rewards", "manifests", "experiments", "deployments")
"""Folders that are read when `roots` is not written."""

_URL = r"^https?://[^\s/]+(/.*)?$"
_NEEDS_URL: dict[str, Any] = {
    "if": {"properties": {"platform": {"const": "http"}}, "required": ["platform"]},
    "then": {"required": ["url"], "properties": {"url": {"type": "string"}}},
}


class Target(Frozen):
    """A platform under a name."""

    model_config = ConfigDict(json_schema_extra=_NEEDS_URL)

    platform: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    """file of `arena_gitops.platforms`: local, http, arena_cloud …"""
    url: Annotated[str, Field(pattern=_URL)] | None = None
    runner: str | None = None
    """of a local target: the `arena-runner` program, when it is not beside the interpreter or on PATH"""

    @model_validator(mode="after")
    def _fits_platform(self) -> Self:
        if self.platform == "http" and self.url is None:
            raise ValueError("an http target needs 'url'")
        return self


class StackPolicy(Frozen):
    """What the plan enforces."""

    max_credits_per_pr: Annotated[Float, Field(ge=0)] | None = None
    tiers: tuple[str, ...] = ()
    """tiers that may be used; empty: all"""
    require_owner: Bool = False
    max_credits_per_month: Annotated[Float, Field(ge=0)] | None = None
    """with what the stack's runs of this month have cost already"""
    max_credits_declared: Annotated[Float, Field(ge=0)] | None = None
    """what training everything that is declared once can cost"""
    max_credits_increase: Annotated[Float, Field(ge=0)] | None = None
    """what a plan may add to that"""
    max_credits_increase_percent: Annotated[Float, Field(ge=0)] | None = None
    """the same as a part of what it was before"""
    max_nodes: Annotated[Int, Field(ge=1)] | None = None
    """of one run"""
    floating_dataset: Literal["allow", "warn", "forbid"] = "allow"
    """rows of the hub whose revision is not pinned: what is trained can change by itself"""
    floating_model: Literal["allow", "warn", "forbid"] = "allow"
    """base models of the hub whose revision is not pinned: the first run decides which one it was"""
    reward_network: Literal["allow", "warn", "forbid"] = "allow"
    """rewards with `network: full`: their code may reach other machines while it scores"""
    reward_secrets: tuple[SecretName, ...] | None = None
    """secrets that rewards may be given; absent: any"""


_MOVABLE = r"^(dataset|environment|reward|experiment)/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


class Moved(Frozen):
    """A rename that cannot be seen, because other things changed with it."""

    source: Annotated[str, Field(pattern=_MOVABLE, alias="from")]
    to: Annotated[str, Field(pattern=_MOVABLE)]


class Imported(Frozen):
    """Something that the platform has and no repository manages: this one takes it over."""

    kind: Literal["project", "dataset", "environment", "reward", "experiment", "deployment"]
    name: Name
    """as this repository declares it"""
    id: Annotated[str | int, Field(union_mode="left_to_right")]
    """what the platform calls it; `arena import --list` shows it"""
    adopt: Literal["as_is"] | None = None
    """`as_is`: what the repository says counts as what was trained, also where the two differ"""

    @field_validator("id")
    @classmethod
    def _says_something(cls, value: str | int) -> str | int:
        if str(value).strip() == "":
            raise ValueError("expected what the platform calls it; arena import --list shows it")
        return value


class Imports(Frozen):
    """A document without `kind` that holds nothing but `imports`."""

    imports: tuple[Imported, ...]


class Preview(Frozen):
    """Limits of runs in a pull request's namespace."""

    max_steps: Annotated[Int, Field(ge=1)] = 200


class Stack(Frozen):
    """The root document. `name` is the owner of everything this repository manages."""

    name: Name
    description: str = ""
    project: Name | None = None
    targets: Annotated[dict[Name, Target], Field(min_length=1)] = Field(
        default_factory=lambda: {"local": Target(platform="local")}
    )
    default_target: Name | None = None
    """absent: the only target there is"""
    policy: StackPolicy = StackPolicy()
    roots: tuple[RepoPath, ...] = ROOTS
    """folders whose YAML files are read"""
    preview: Preview = Preview()
    moved: tuple[Moved, ...] = ()
    """what was renamed; harmless once it is done"""
    imports: tuple[Imported, ...] = ()
    """what is taken over from the platform; harmless once it is done"""

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name == RESERVED:
            raise ValueError(f"the name {name!r} is reserved for what commands make; choose another")
        return name

    @model_validator(mode="after")
    def _knows_default_target(self) -> Self:
        if self.default_target is not None and self.default_target not in self.targets:
            hint = suggestion(self.default_target, self.targets)
            raise ValueError(f"default_target {self.default_target!r} is not one of the targets; {hint}")
        return self
