"""What kind of change a field is: the table of plan-semantics §2.1, as data.

Paths are those of the *stored* spec. The first matching row wins; a field nobody listed is semantic, because
training twice is dearer than asking once too often. `data_part` and `meta_part` cut a stored spec for
`digest.fingerprint`; the rest (budget, placement …) is compared by the planner field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

Path = tuple[str, ...]


class FieldClass(StrEnum):
    """What follows when a field of this class changes."""

    IDENTITY = "identity"
    """another resource, or a move"""
    METADATA = "metadata"
    """updated in place, never a run"""
    BUDGET = "budget"
    """raised: resume; lowered: satisfied or capped"""
    PLACEMENT = "placement"
    """where the work runs"""
    OBSERVABILITY = "observability"
    """what is recorded and when"""
    RERUN = "rerun"
    """raised: the same thing is trained once more"""
    SEMANTIC = "semantic"
    """what would be trained or served: a new version"""
    ROTATED = "rotated"
    """the version of a value that only the platform has"""
    COSMETIC = "cosmetic"
    """a file that means what it meant before: found by comparing both, never a class of a field by itself"""
    RECORDED = "recorded"
    """shown, not compared"""
    DERIVED = "derived"
    """filled by the platform"""


BEHAVES_AS = "behaves_as"
"""Of what is trained with: the file its fingerprint is that of, where only how it is written has changed since."""

VALUES_GIVEN = "secret_versions"
"""Of a reward: which values its secrets had when it was written last; 0 for none."""
ROWS_HASH = "rows_hash"
"""Of a dataset: what its rows are, whatever its file looks like; written by an apply that could read them."""

_EVERY_KIND: tuple[tuple[str, FieldClass], ...] = (
    ("kind", FieldClass.IDENTITY),
    ("name", FieldClass.IDENTITY),
    ("description", FieldClass.METADATA),
    ("labels", FieldClass.METADATA),
    ("owner", FieldClass.METADATA),
    ("lifecycle", FieldClass.METADATA),
    ("provenance", FieldClass.RECORDED),
)

_BY_KIND: dict[str, tuple[tuple[str, FieldClass], ...]] = {
    "project": (),
    "dataset": (
        ("address", FieldClass.IDENTITY),
        (BEHAVES_AS, FieldClass.DERIVED),
        (ROWS_HASH, FieldClass.DERIVED),
    ),
    "environment": (("address", FieldClass.IDENTITY), (BEHAVES_AS, FieldClass.DERIVED)),
    "reward": (
        ("address", FieldClass.IDENTITY),
        (BEHAVES_AS, FieldClass.DERIVED),
        (VALUES_GIVEN, FieldClass.ROTATED),
        ("cases", FieldClass.METADATA),  # they check the reward; they do not train
    ),
    "experiment": (
        ("project", FieldClass.IDENTITY),
        ("manifest.training.max_steps", FieldClass.BUDGET),
        ("manifest.training.target_score", FieldClass.BUDGET),
        ("manifest.training.checkpoint_steps", FieldClass.OBSERVABILITY),
        ("manifest.training.name", FieldClass.METADATA),
        ("manifest.mutation.name", FieldClass.METADATA),
        ("manifest.selection.name", FieldClass.METADATA),
        ("manifest.replay_buffer.name", FieldClass.METADATA),
        # what these name is resolved into `inputs`, which is compared instead
        ("manifest.environment.name", FieldClass.METADATA),
        ("manifest.environment.dataset", FieldClass.METADATA),
        ("manifest.environment.dataset_path", FieldClass.METADATA),
        ("manifest.environment.hf_dataset_id", FieldClass.METADATA),
        ("manifest.environment.reward_file_path", FieldClass.METADATA),
        ("manifest.environment.reward_fn_name", FieldClass.METADATA),
        ("inputs.dataset.address", FieldClass.METADATA),
        ("inputs.reward.address", FieldClass.METADATA),
        ("inputs.reward.cases", FieldClass.METADATA),
        ("inputs.environment.address", FieldClass.METADATA),
        ("inputs.base.files", FieldClass.DERIVED),
        ("defaulted", FieldClass.RECORDED),
        ("tier", FieldClass.PLACEMENT),
        ("num_nodes", FieldClass.PLACEMENT),
        ("region", FieldClass.PLACEMENT),
        ("priority", FieldClass.PLACEMENT),
        ("notes", FieldClass.METADATA),
        ("notify", FieldClass.METADATA),
        ("reuse", FieldClass.METADATA),
        ("budget", FieldClass.BUDGET),
        ("retry", FieldClass.METADATA),
        ("on_upstream_change", FieldClass.METADATA),
        ("rerun", FieldClass.RERUN),
    ),
    "deployment": (
        ("tier", FieldClass.PLACEMENT),
        ("engine", FieldClass.PLACEMENT),
        ("strategy", FieldClass.METADATA),  # how traffic moves, not what is served
        ("limits", FieldClass.METADATA),
    ),
}


_SECRETS: dict[str, tuple[str, ...]] = {
    "reward": ("secrets", VALUES_GIVEN),
    "experiment": ("inputs.reward.secrets",),
}
"""Fields with names that a server knows values of."""


def field_class(kind: str, path: str) -> FieldClass:
    """The class of a field of a stored spec, by its dotted path."""
    return _class_of(kind, tuple(path.split(".")))


def names_secrets(kind: str, path: str) -> bool:
    """Whether a field of a stored spec holds names of secrets."""
    return any(f"{path}.".startswith(f"{field}.") for field in _SECRETS.get(kind, ()))


def data_part(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What would be trained or served: the semantic fields alone."""
    return _part(kind, spec, FieldClass.SEMANTIC)


def meta_part(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What people read: the metadata fields alone."""
    return _part(kind, spec, FieldClass.METADATA)


@lru_cache(maxsize=1 << 14)
def _class_of(kind: str, path: Path) -> FieldClass:
    for pattern, found in (*_EVERY_KIND, *_BY_KIND[kind]):
        row = tuple(pattern.split("."))
        if path[: len(row)] == row:
            return found
    return FieldClass.SEMANTIC


def _part(kind: str, spec: Mapping[str, Any], wanted: FieldClass, at: Path = ()) -> dict[str, Any]:
    part: dict[str, Any] = {}
    known = _fields(kind, at)
    for key, value in spec.items():
        found = known.get(key)
        if found is None:
            path = (*at, key)
            found = known[key] = _class_of(kind, path), path in _mixed(kind)
        cls, mixed = found
        if mixed and value and isinstance(value, Mapping):
            if inner := _part(kind, value, wanted, (*at, key)):
                part[key] = inner
        elif cls is wanted:
            part[key] = value
    return part


@cache
def _fields(_kind: str, _at: Path) -> dict[str, tuple[FieldClass, bool]]:
    """What is known of the fields of one mapping: each one's class, and whether those below it differ."""
    return {}


@cache
def _mixed(kind: str) -> frozenset[Path]:
    """Mappings whose fields are of several classes; every other one is of one class, whatever is in it."""
    rows = [tuple(pattern.split(".")) for pattern, _ in (*_EVERY_KIND, *_BY_KIND[kind])]
    return frozenset(row[:length] for row in rows for length in range(1, len(row)))
