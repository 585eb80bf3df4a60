"""The base of every manifest section, and the marks a field may carry.

Most published fields have an effect here. Those that have none are declared all the same, so that a manifest
written for another trainer parses and a typing error is still an error:

* `Understood[T]` — kept in the normal form when written, reported as *not acted on*, never silently dropped;
* `Only(value, …)` — kept as well, but any other value would train something else than its author meant, so
  the manifest parses and the plan refuses it by name.

A third, `UnlessWritten`, is for fields that act and are left out of the normal form while nobody writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, SerializerFunctionWrapHandler, model_serializer

from arena_gitops.spec.resource import Frozen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NotActedOn:
    """The field is understood and has no effect; `why` says what decides instead."""

    why: str = ""


class Only:
    """The values of a field that have a room; every other one is refused by the plan."""

    def __init__(self, *values: Any, why: str) -> None:
        self.values = values
        self.why = why


class UnlessWritten:
    """The field acts, and while nobody writes it the algorithm's own rule decides; it then leaves the normal form.

    For knobs that came after the first release: what was stored without them still means the same.
    """


NOT_ACTED_ON = NotActedOn()
Understood = Annotated[T | None, NOT_ACTED_ON]


class Section(Frozen):
    """A mapping of the manifest. Fields without effect leave the normal form when they are not written."""

    # A manifest uses a few of these classes; building the others would cost every start of the program.
    model_config = ConfigDict(defer_build=True)

    @model_serializer(mode="wrap")
    def _without_unwritten(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        optional = _optional(type(self))
        return {key: value for key, value in dumped.items() if value is not None or key not in optional}

    @classmethod
    def acted_on(cls) -> tuple[str, ...]:
        """Names of the fields that have an effect, in order of declaration."""
        return tuple(name for name in cls.model_fields if name not in _marks(cls))

    def marked(self) -> Iterator[tuple[tuple[str, ...], Any, NotActedOn | Only]]:
        """Every written field that carries a mark, nested sections included: (path, value, mark)."""
        marks = _marks(type(self))
        for name in _looked_at(type(self)):
            value = getattr(self, name)
            if value is not None and name in marks:
                yield (name,), value, marks[name]
            elif isinstance(value, Section):
                for path, inner, mark in value.marked():
                    yield (name, *path), inner, mark


@cache
def _looked_at(section: type[Section]) -> tuple[str, ...]:
    """Fields that carry a mark, or may hold a section that has some."""
    plain = {int, float, str, bool}
    return tuple(
        name
        for name, field in section.model_fields.items()
        if name in _marks(section) or field.annotation not in plain
    )


@cache
def _marks(section: type[Section]) -> dict[str, NotActedOn | Only]:
    """Field name → its mark."""
    return {
        name: mark
        for name, field in section.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, NotActedOn | Only)
    }


@cache
def _optional(section: type[Section]) -> frozenset[str]:
    """Fields that leave the normal form while they are not written."""
    after = (
        name
        for name, field in section.model_fields.items()
        if any(mark is UnlessWritten or isinstance(mark, UnlessWritten) for mark in field.metadata)
    )
    return frozenset({*_marks(section), *after})
