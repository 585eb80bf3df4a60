"""Structural difference of two JSON values, as paths; the law is `patch(a, diff(a, b)) == b`.

Mappings are compared key by key, everything else as a whole: a list is one value, because an index is not
an identity. What a difference *means* is decided in `plan.classify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Op(StrEnum):
    """What happened at a path."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Difference:
    """One path at which two values differ; `old` is None for an added, `new` for a removed path."""

    path: tuple[str, ...]
    op: Op
    old: Any = None
    new: Any = None

    @property
    def dotted(self) -> str:
        """The path as people and field tables write it."""
        return ".".join(self.path)


def diff(old: Any, new: Any, path: tuple[str, ...] = ()) -> tuple[Difference, ...]:
    """All differences between two JSON values, sorted by path."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return () if _equal(old, new) else (Difference(path, Op.REPLACE, old, new),)
    found: list[Difference] = []
    for key in sorted({*old, *new}):
        here = (*path, key)
        if key not in old:
            found.append(Difference(here, Op.ADD, new=new[key]))
        elif key not in new:
            found.append(Difference(here, Op.REMOVE, old=old[key]))
        else:
            found.extend(diff(old[key], new[key], here))
    return tuple(found)


def patch(value: Any, differences: Iterable[Difference]) -> Any:
    """`value` with the differences applied; shares nothing mutable with it along changed paths."""
    for difference in differences:
        value = _patched(value, difference.path, difference)
    return value


def leaves(difference: Difference) -> Iterator[Difference]:
    """The same difference with an added or removed mapping taken apart, so that every field has its class."""
    side = difference.new if difference.op is Op.ADD else difference.old
    if difference.op is Op.REPLACE or not isinstance(side, Mapping) or not side:
        yield difference
        return
    for key in sorted(side):
        here = (*difference.path, key)
        added = difference.op is Op.ADD
        part = (
            Difference(here, Op.ADD, new=side[key]) if added else Difference(here, Op.REMOVE, old=side[key])
        )
        yield from leaves(part)


def _patched(value: Any, path: tuple[str, ...], difference: Difference) -> Any:
    if not path:
        return difference.new
    key, *rest = path
    copy = dict(value)
    if rest:
        copy[key] = _patched(copy[key], tuple(rest), difference)
    elif difference.op is Op.REMOVE:
        del copy[key]
    else:
        copy[key] = difference.new
    return copy


def _equal(old: Any, new: Any) -> bool:
    """JSON equality: 1 is 1.0, but true is not 1, at any depth."""
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(map(_equal, old, new))
    return bool(old == new)
