"""Names made of content: the only memory a create-only platform has.

    gsm8k-grpo--v2-1f3c9a0b-77aa01-7de2c1      experiment, version, work, rows, owner
    gsm8k--77aa0195                            dataset, rows

*work* is what is sent to be trained, but for its rows; *rows* is the dataset's content; *owner* is the stack within
its namespace, so that nobody takes the work of another for an earlier version of its own. A name is at most 63
letters long: a longer beginning is cut and gets a digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from arena_gitops.platforms.arena_cloud.sent import written
from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.wire import Owner

LONGEST = 63
_VERSION = re.compile(
    r"(?P<base>[a-z0-9-]+)--v(?P<number>[1-9]\d*)-(?P<work>[0-9a-f]{8})-(?P<rows>[0-9a-f]{6})-(?P<owner>[0-9a-f]{6})"
)


@dataclass(frozen=True, slots=True)
class Content:
    """What an experiment trains, as far as a name holds it."""

    work: str
    rows: str


@dataclass(frozen=True, slots=True)
class VersionName:
    """One version of an experiment."""

    base: str
    number: int
    content: Content
    owner: str

    def __str__(self) -> str:
        return f"{self.base}--v{self.number}-{self.content.work}-{self.content.rows}-{self.owner}"

    @property
    def short(self) -> str:
        """For messages: `v2 (1f3c9a0b)`."""
        return f"v{self.number} ({self.content.work})"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for a name that was not made here."""
        found = _VERSION.fullmatch(text)
        if found is None:
            return None
        content = Content(found["work"], found["rows"])
        return cls(found["base"], int(found["number"]), content, found["owner"])

    @classmethod
    def of(cls, name: str, number: int, content: Content, owner: Owner) -> Self:
        """The name of a version that is about to be made."""
        made = cls(name, number, content, owner_tag(owner))
        return cls(cut(name, LONGEST - len(str(made)) + len(name)), number, content, made.owner)


def owner_tag(owner: Owner) -> str:
    """Whose it is, in six letters."""
    return _short([owner.stack, owner.namespace], 6)


def content_of(spec: Mapping[str, Any], rerun: int = 0) -> Content:
    """What a stored experiment would train."""
    inputs = spec["inputs"]
    dataset = inputs.get("dataset")
    plain = {**spec, "manifest": written(spec), "inputs": {**inputs, "dataset": None}}
    work = fingerprint_of("experiment", plain, ()).data
    return Content(_short([work, rerun], 8), _short(_rows(dataset), 6))


def dataset_name(name: str, source: Mapping[str, Any]) -> str:
    """The name of a dataset with this content; `source` is its stored spec, or the input of a job."""
    tag = _short(_rows(source), 8)
    return f"{cut(name, LONGEST - 10)}--{tag}"


def earlier_rows(name: str, names: frozenset[str]) -> frozenset[str]:
    """Names that the dataset has had with other content, and has now."""
    start = f"{cut(name, LONGEST - 10)}--"
    return frozenset(one for one in names if re.fullmatch(re.escape(start) + "[0-9a-f]{8}", one))


def cut(name: str, longest: int) -> str:
    """The name, or as much of it as there is room for and a digest of all of it."""
    return name if len(name) <= longest else f"{name[: longest - 7].rstrip('-')}-{_short(name, 6)}"


def _rows(source: Mapping[str, Any] | None) -> list[Any]:
    if source is None:
        return []
    return [source.get("category"), source.get("column_mapping"), source.get("digest"), source.get("hf")]


def _short(value: Any, length: int) -> str:
    return sha256_json(value).removeprefix("sha256:")[:length]
