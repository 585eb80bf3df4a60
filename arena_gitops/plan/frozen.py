"""Defaults are those of the day a resource was made: a newer version of this tool trains nothing by itself.

What nobody wrote, then or now, keeps the value it was stored with; a field that did not exist then stays absent,
and an absent field means what was done before there was one. Once something is to be trained anyway, because
somebody wrote or took out something, the defaults of today are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arena_gitops.plan.classify import TRAINED
from arena_gitops.plan.diff import Difference, Op, diff, leaves
from arena_gitops.spec.lifecycle import FieldClass, field_class
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource

MANIFEST = "manifest"
INPUTS = "inputs"
"""Settled with the resource each of them comes from."""


def frozen(resource: DesiredResource, document: ResourceDocument) -> dict[str, Any] | None:
    """The spec with the defaults it was stored with; None where there is nothing to keep, or no reason to."""
    moved = list(_semantic(resource, document))
    if not moved or not all(_by_itself(leaf, resource, document) for leaf in moved):
        return None
    spec: dict[str, Any] = dict(resource.spec)
    for leaf in moved:
        spec = _undone(spec, leaf.path, leaf)
    return spec


def _semantic(resource: DesiredResource, document: ResourceDocument) -> Iterator[Difference]:
    """What would be trained differently, of the resource's own fields."""
    kind = resource.address.kind
    for difference in diff(document.spec, resource.spec):
        if difference.path[0] != INPUTS:
            for leaf in leaves(difference):
                if field_class(kind, leaf.dotted) is FieldClass.SEMANTIC:
                    yield leaf


def _by_itself(leaf: Difference, resource: DesiredResource, document: ResourceDocument) -> bool:
    """Whether nobody in the repository has made this difference."""
    if resource.address.kind == TRAINED and leaf.path[0] == MANIFEST:
        inner = leaf.dotted.removeprefix(f"{MANIFEST}.")
        if inner not in _defaulted(resource.spec):
            return False
        return leaf.op is Op.ADD or (leaf.op is Op.REPLACE and inner in _defaulted(document.spec))
    return leaf.op is Op.ADD and not any(
        ".".join(leaf.path[:length]) in resource.spans for length in range(1, len(leaf.path) + 1)
    )


def _defaulted(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(spec.get("defaulted") or ())


def _undone(value: Any, path: tuple[str, ...], difference: Difference) -> Any:
    """The value as it was before a difference; a section that only held it is gone with it."""
    key, *rest = path
    copy = dict(value)
    if rest:
        copy[key] = _undone(copy[key], tuple(rest), difference)
        if copy[key] or difference.op is not Op.ADD:
            return copy
    if difference.op is Op.ADD:
        del copy[key]
    else:
        copy[key] = difference.old
    return copy
