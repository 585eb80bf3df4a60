"""Fingerprints of stored specs: the same content has one fingerprint, whoever sends it and wherever it lay."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from arena_gitops.spec.digest import Fingerprint, fingerprint
from arena_gitops.spec.lifecycle import data_part, meta_part

_ENTRY = "(entry)"
"""What the entry file is called in fingerprints, so that moving or renaming it is no change of the reward."""


def fingerprint_of(kind: str, spec: Mapping[str, Any], parents: Iterable[Fingerprint]) -> Fingerprint:
    """Fingerprint of a stored spec. Where a reward's files lie does not count, what is in them does."""
    comparable = dict(spec)
    if kind == "reward":
        comparable = _without_place(comparable)
    if kind == "experiment" and comparable["inputs"]["reward"] is not None:
        reward = _without_place(comparable["inputs"]["reward"])
        comparable["inputs"] = {**comparable["inputs"], "reward": reward}
    return fingerprint(data_part(kind, comparable), meta_part(kind, comparable), parents)


def code_names(spec: Mapping[str, Any]) -> dict[str, str]:
    """Files of a reward or environment, named as its fingerprint names them → digest."""
    if "entrypoint" in spec:
        return dict(spec["files"])
    return dict(_without_place(spec)["files"])


def _without_place(reward: Mapping[str, Any]) -> dict[str, Any]:
    entry = reward["entry"]
    folder = posixpath.dirname(entry) or "."
    files = {
        _ENTRY if path == entry else posixpath.relpath(path, folder): digest
        for path, digest in reward["files"].items()
    }
    return {**reward, "files": files, "entry": _ENTRY}
