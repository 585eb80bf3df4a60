"""The envelope every resource shares, and how resources are named and referred to.

Pure data. Reading YAML is `repo`'s work, deciding what a difference means is `plan`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A resource's name: lower case letters, digits and inner dashes, at most 63 characters."""

MAIN = "main"
"""The namespace of what is meant to stay, where nothing else is said."""

PREVIEW_PATTERN = r"pr-[1-9][0-9]*"
"""Namespaces of pull requests; every other one is as its stack says, uncut and protected."""

BETWEEN = "--"
"""Between a namespace and a name, in what clients call deployments outside `main`."""

NAMES = "lower case letters, digits and inner dashes, at most 63 characters"
"""What names are made of, for messages."""


def served_as(namespace: str, name: str) -> str:
    """What clients call a deployment."""
    return name if namespace == MAIN else f"{namespace}{BETWEEN}{name}"


def is_preview(namespace: str) -> bool:
    """Whether a namespace is a pull request's own: cut short, unprotected, gone with it."""
    return re.fullmatch(PREVIEW_PATTERN, namespace) is not None


def is_name(text: str) -> bool:
    """Whether the text could name a resource, a stack or a namespace."""
    return re.fullmatch(NAME_PATTERN, text) is not None


KINDS: tuple[str, ...] = ("project", "dataset", "environment", "reward", "experiment", "deployment")
"""Every kind, in the order in which an apply touches them."""


class Frozen(BaseModel):
    """Base of every document model: immutable, and a key nobody declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`kind/name`, the identity of a resource within a stack and namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `kind/name`; raises ValueError with what was expected."""
        kind, slash, name = text.partition("/")
        if not slash or kind not in KINDS or not is_name(name):
            raise ValueError(
                f"{text!r} is not an address; expected KIND/NAME with KIND one of {', '.join(KINDS)}"
            )
        return cls(kind, name)


@dataclass(frozen=True, slots=True)
class Ref:
    """`name`, `name@v3` or `name@sha256:…`: a floating or pinned reference to a resource."""

    name: str
    version: int | None = None
    digest: str | None = None

    @property
    def floating(self) -> bool:
        """Whether the reference follows the repository's current content."""
        return self.version is None and self.digest is None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}@v{self.version}"
        return f"{self.name}@{self.digest}" if self.digest else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a reference; raises ValueError with what was expected."""
        name, at, pin = text.partition("@")
        if not is_name(name):
            raise ValueError(f"{text!r} does not start with a resource name")
        if not at:
            return cls(name)
        if match := re.fullmatch(r"v([1-9][0-9]*)", pin):
            return cls(name, version=int(match[1]))
        if re.fullmatch(r"sha256:[0-9a-f]{64}", pin):
            return cls(name, digest=pin)
        raise ValueError(f"{text!r}: after @ comes v<number> or sha256:<64 hex digits>")


Left = Literal[
    "description", "labels", "owner", "notes", "notify", "tier", "region", "priority", "num_nodes", "budget", "retry",
    "strategy", "limits",
]  # fmt: skip
"""Fields that may be left to the platform: none of what is trained or served."""


class Lifecycle(Frozen):
    """Protection that survives the file's removal, and what is left to the platform."""

    protect: StrictBool = False
    ignore_remote_changes: tuple[Left, ...] = ()
    """fields that are written when the resource is made, and left as the platform has them afterwards"""


class Resource(Frozen):
    """What every kind carries beside its own fields. Subclasses set `kind` to a Literal."""

    name: Name
    description: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    owner: str | None = None
    lifecycle: Lifecycle = Lifecycle()
