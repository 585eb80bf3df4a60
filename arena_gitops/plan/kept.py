"""What a resource keeps as the platform has it, although its file has come to say something else about it.

Fields that are left to the platform (`lifecycle.ignore_remote_changes`); a pin of what was trained with anyway, or one
that is taken out again; and values that `lifecycle.on_change` names, as long as they are what was trained with: naming
a field trains nothing, changing it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arena_gitops.plan.classify import TRAINED, spec_at
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.on_change import DISTINCT, stored_path
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import DesiredResource


def kept(resource: DesiredResource, document: ResourceDocument) -> DesiredResource:
    """The resource with everything that stays as it is."""
    spec = _left_alone(dict(resource.spec), document.spec)
    if resource.address.kind == TRAINED:
        spec = _pins(spec, document.spec, document.run)
        spec = _distinct(spec, document.spec)
    if spec == resource.spec:
        return resource
    parents = [fingerprint for _, fingerprint in resource.parents]
    return replace(resource, spec=spec, fingerprint=fingerprint_of(resource.address.kind, spec, parents))


def fits(pin: str, version: str) -> bool:
    """Whether a version is one that a pin means: `0.3` is any 0.3.x."""
    return version == pin or version.startswith(f"{pin}.")


def _left_alone(spec: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    for name in spec_at(spec, "lifecycle.ignore_remote_changes") or ():
        if name in stored:
            spec[name] = stored[name]
        elif name in spec:
            del spec[name]
    return spec


def _pins(spec: dict[str, Any], stored: Mapping[str, Any], run: RunStatus | None) -> dict[str, Any]:
    new, old = spec.get("model"), stored.get("model")
    if new and old and new["id"] == old["id"] and new["revision"] != old["revision"]:
        trained = run.model.revision if run is not None and run.model is not None else None
        if new["revision"] is None or (old["revision"] is None and new["revision"] == trained):
            spec["model"] = old
    pin, before = spec.get("trainer"), stored.get("trainer")
    used = run.trainer if run is not None else None
    if pin != before and (pin is None or (used is not None and fits(pin, used))):
        spec.pop("trainer", None)
        spec |= {"trainer": before} if before is not None else {}
    return spec


def _distinct(spec: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    named: Mapping[str, Any] = spec.pop(DISTINCT, {})
    before: Mapping[str, Any] = stored.get(DISTINCT) or {}
    moved = {p: value for p, value in named.items() if value != spec_at(stored, stored_path(p))}
    found = {**before, **moved}
    return {**spec, DISTINCT: found} if found else spec
