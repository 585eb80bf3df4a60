"""What a submission holds: what somebody wrote of a manifest, in the names of the published client.

Defaults are left out. They are the platform's to fill in, and so a newer version of this tool, whose own defaults
may have moved, changes nothing of what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OURS: Mapping[str, frozenset[str]] = {
    "training": frozenset({"eval_rows", "test_rows"}),
    "selection": frozenset({"strategy"}),
}
"""Settings that only our own trainer has: section → keys."""
_RESOLVED = ("dataset", "dataset_path", "hf_dataset_id", "reward_file_path", "reward_fn_name")
"""Of the environment: what the repository resolves, and is written anew."""


def written(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a stored experiment's manifest that somebody wrote and that is sent."""
    return _kept(spec["manifest"], frozenset(spec.get("defaulted") or ()))


def published(spec: Mapping[str, Any], dataset: str | None) -> dict[str, Any]:
    """The manifest as it is sent; `dataset` is the rows' name on the platform."""
    manifest = written(spec)
    if dataset is not None:
        environment = {k: v for k, v in manifest.get("environment", {}).items() if k not in _RESOLVED}
        manifest["environment"] = {**environment, "dataset": dataset}
        if reward := spec["inputs"].get("reward"):
            entry = str(reward["entry"]).rpartition("/")[2]
            manifest["environment"] |= {"rubric_file_path": entry, "rubric_name": reward["function"]}
    if "selection" in manifest:
        manifest["tournament_selection"] = manifest.pop("selection")
    return manifest


def ours(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of our own trainer that somebody wrote: they are not sent."""
    defaulted = frozenset(spec.get("defaulted") or ())
    paths = [f"{section}.{key}" for section, keys in OURS.items() for key in sorted(keys)]
    manifest = spec["manifest"]
    return tuple(
        path
        for path in paths
        if path not in defaulted and path.split(".")[1] in manifest.get(path.split(".")[0], {})
    )


def _kept(tree: Mapping[str, Any], defaulted: frozenset[str], at: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = (*at, key)
        if ".".join(path) in defaulted or (len(at) == 1 and key in OURS.get(at[0], ())):
            continue
        if isinstance(value, Mapping) and value:
            if inner := _kept(value, defaulted, path):
                found[key] = inner
        else:
            found[key] = value
    return found
