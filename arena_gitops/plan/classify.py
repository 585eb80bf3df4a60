"""What the differences of one resource mean: each field gets a class, each class a cause.

The field classes are data of `spec.lifecycle`; the run fingerprint has the last word on whether anything is
trained anew. Budgets need their direction and what the run has done; everything else is a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena_gitops.errors import Span
from arena_gitops.plan.cosmetic import REWRITTEN
from arena_gitops.plan.diff import Difference, diff, leaves
from arena_gitops.plan.matrix import Cause, outcome
from arena_gitops.plan.model import FieldChange, Range
from arena_gitops.plan.phase import Phase, phase_of
from arena_gitops.spec.lifecycle import FieldClass, field_class, names_secrets
from arena_gitops.spec.on_change import DISTINCT, stored_path
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource

TRAINED = "experiment"
VERSIONED = frozenset({"dataset", "environment", "reward", "experiment"})
"""Kinds whose content has version numbers."""

_PLAIN: dict[FieldClass, Cause] = {
    FieldClass.IDENTITY: Cause.METADATA,
    FieldClass.METADATA: Cause.METADATA,
    FieldClass.ROTATED: Cause.ROTATED,
    FieldClass.PLACEMENT: Cause.PLACEMENT,
    FieldClass.OBSERVABILITY: Cause.OBSERVABILITY,
    FieldClass.RECORDED: Cause.NONE,
    FieldClass.DERIVED: Cause.NONE,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Everything that differs in one resource, and the cause that decides."""

    cause: Cause
    fields: tuple[FieldChange, ...] = ()


def classify(desired: DesiredResource, document: ResourceDocument, *, cap: int | None = None) -> Finding:
    """Compare a desired with an observed resource.

    Args:
        desired: As the repository wants it.
        document: As the platform stores it.
        cap: The platform's own limit on `max_steps`.
    """
    if unchanged(desired, document):
        return Finding(Cause.NONE)
    judge = _Judge(desired, document, cap)
    causes: list[Cause] = [Cause.NONE]
    fields: list[FieldChange] = []
    for difference in diff(document.spec, desired.spec):
        for leaf in leaves(difference):
            if leaf.path[0] == DISTINCT:
                continue  # told by the field whose value it repeats
            cause, field = judge.field(leaf)
            if cause is not Cause.NONE:
                causes.append(cause)
                fields.append(field)
    if judge.trained_anew and Cause.SEMANTIC not in causes:
        causes.append(Cause.PARENT)
    phase = phase_of(document)
    return Finding(max(causes, key=lambda cause: _weight(cause, phase)), tuple(fields))


def unchanged(desired: DesiredResource, document: ResourceDocument) -> bool:
    """Whether nothing differs at all: the usual case, and much cheaper to see than to walk through."""
    return desired.fingerprint == document.fingerprint and desired.spec == document.spec


def where(desired: DesiredResource, path: str) -> Range | None:
    """The place in the repository that a dotted path comes from; its nearest known ancestor otherwise."""
    while path:
        if span := desired.spans.get(path):
            return range_of(span)
        path = path.rpartition(".")[0]
    return range_of(desired.span)


def range_of(span: Span | None) -> Range | None:
    """A span as it is written into a plan."""
    return None if span is None else Range(filename=span.file, line=span.line, column=span.column)


def _weight(cause: Cause, phase: Phase) -> tuple[int, int]:
    """Most severe action first; among equals, the later row of the matrix."""
    return outcome(cause, phase).action.severity, list(Cause).index(cause)


@dataclass(frozen=True, slots=True)
class _Judge:
    desired: DesiredResource
    document: ResourceDocument
    cap: int | None

    @property
    def trained_anew(self) -> bool:
        return self.document.kind == TRAINED and self.desired.fingerprint.run != self.document.fingerprint.run

    @property
    def escalated(self) -> frozenset[str]:
        """Fields that `lifecycle.on_change` counts among what is trained."""
        named = spec_at(self.desired.spec, "lifecycle.on_change") or {}
        return frozenset(stored_path(path) for path in named)

    @property
    def content_changed(self) -> bool:
        old, new = self.document.fingerprint, self.desired.fingerprint
        return new.run != old.run if self.document.kind == TRAINED else new.data != old.data

    def field(self, leaf: Difference) -> tuple[Cause, FieldChange]:
        cls = field_class(self.document.kind, leaf.dotted)
        if leaf.dotted in self.escalated and self.trained_anew:
            cls = FieldClass.SEMANTIC
        cause = self._cause(leaf, cls)
        if cls is FieldClass.SEMANTIC and cause is Cause.METADATA and self.document.kind in REWRITTEN:
            cls, cause = FieldClass.COSMETIC, Cause.COSMETIC
        return cause, FieldChange(
            path=leaf.dotted,
            cls=cls,
            op=leaf.op,
            old=leaf.old,
            new=leaf.new,
            remote=leaf.old,
            sensitive=names_secrets(self.document.kind, leaf.dotted),
            action=outcome(cause, phase_of(self.document)).action,
            reason=cause.value,
            range=where(self.desired, leaf.dotted),
        )

    def _cause(self, leaf: Difference, cls: FieldClass) -> Cause:
        if plain := _PLAIN.get(cls):
            return plain
        if cls is FieldClass.RERUN:
            return Cause.RERUN if int(leaf.new or 0) > int(leaf.old or 0) else Cause.METADATA
        if cls is FieldClass.BUDGET:
            return self._budget_cause(leaf)
        if self.document.kind not in VERSIONED:
            return Cause.DEFINITION
        return Cause.SEMANTIC if self.content_changed else Cause.METADATA

    def _budget_cause(self, leaf: Difference) -> Cause:
        follows_epochs = spec_at(self.desired.spec, "manifest.training.num_epochs") is not None
        if leaf.path[-1] == "max_steps" and follows_epochs:
            return Cause.BUDGET_RECORDED  # the run's length is that of its epochs
        return budget_cause(leaf, self.document, self.cap)


def budget_cause(leaf: Difference, document: ResourceDocument, cap: int | None) -> Cause:
    """Which way a budget moved, and whether that leaves anything to do."""
    match leaf.path[-1]:
        case "max_steps":
            return _steps_cause(_number(leaf.old), _number(leaf.new), document, cap)
        case "target_score":
            return _target_cause(leaf, document)
        case _:
            return Cause.CEILING_RAISED if _raised(leaf.old, leaf.new) else Cause.BUDGET_RECORDED


def _steps_cause(old: float, new: float, document: ResourceDocument, cap: int | None) -> Cause:
    limit = float("inf") if cap is None else cap
    if new < old and not phase_of(document).in_flight:
        return Cause.BUDGET_SATISFIED
    if new < old:
        return Cause.BUDGET_LOWERED if min(new, limit) < min(old, limit) else Cause.BUDGET_RECORDED
    done = document.run.step if document.run else 0
    more = min(new, limit) > max(min(old, limit), done)
    return Cause.BUDGET_RAISED if more else Cause.BUDGET_RECORDED


def _target_cause(leaf: Difference, document: ResourceDocument) -> Cause:
    run = document.run
    left = run is not None and run.state.ended and run.step < run.max_steps
    return Cause.BUDGET_RAISED if left and _raised(leaf.old, leaf.new) else Cause.BUDGET_RECORDED


def _raised(old: Any, new: Any) -> bool:
    """Whether a limit was loosened; no limit is the loosest."""
    return _number(new) > _number(old)


def _number(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return float("inf")


def spec_at(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a stored spec; None when any step of it is absent."""
    value: Any = spec
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
