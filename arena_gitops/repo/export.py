"""A stored resource as the files a repository would have for it: what `arena import` prints and writes.

The way back of `load`: what is read from these files is stored as the same thing. Contents of files are asked for by
digest; nothing here knows a platform.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.repo import block
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ResourceDocument

SHOWN = "arena.name"
"""Label of a name that is no resource's name; the platform made it."""
Fetch = Callable[[str], bytes]
"""The bytes of a digest."""
FOLDERS = {
    "project": "experiments",
    "dataset": "datasets",
    "environment": "environments",
    "reward": "rewards",
    "experiment": "experiments",
    "deployment": "deployments",
}


@dataclass(slots=True)
class Export:
    """Files so far: path from the repository's root → content."""

    fetch: Fetch
    files: dict[str, bytes] = field(default_factory=dict)
    imported: list[Address] = field(default_factory=list)

    def add(self, document: ResourceDocument, file: str | None = None) -> None:
        """The files of one resource; `file` is where it is declared."""
        address = Address(document.kind, document.name)
        place = file or f"{FOLDERS[document.kind]}/{document.name}.yaml"
        spec: Mapping[str, Any] = document.spec
        own = {
            "project": self._project,
            "dataset": self._dataset,
            "environment": self._environment,
            "reward": self._reward,
            "experiment": self._experiment,
            "deployment": self._deployment,
        }[document.kind](document.name, spec, place)
        self.imported.append(address)
        block_of = {"imports": [{"kind": address.kind, "name": address.name, "id": address.name}]}
        declared = {"kind": document.kind.capitalize(), "name": document.name, **_envelope(spec), **own}
        self.files[place] = f"{block.text(declared)}---\n{block.text(block_of)}".encode()

    def add_reward(self, name: str, inputs: Mapping[str, Any]) -> None:
        """A reward that only an experiment's inputs hold."""
        place = f"rewards/{name}.yaml"
        declared = {"kind": "Reward", "name": name, **self._reward(name, inputs, place)}
        self.files[place] = block.text(declared).encode()

    def _project(self, _name: str, spec: Mapping[str, Any], _place: str) -> dict[str, Any]:
        return {"llm_based": True} if spec.get("llm_based") else {}

    def _dataset(self, name: str, spec: Mapping[str, Any], place: str) -> dict[str, Any]:
        if spec.get("hf"):
            source: dict[str, Any] = {"hf": _said(spec["hf"])}
        else:
            file = f"data/{name}.{spec['format']}"
            self.files[_beside(place, file)] = self.fetch(spec["digest"])
            source = {"file": file}
        return {"category": spec["category"], **source, "column_mapping": dict(spec["column_mapping"])}

    def _reward(self, _name: str, spec: Mapping[str, Any], place: str) -> dict[str, Any]:
        folder = posixpath.dirname(spec["entry"]) or "."
        for path, digest in spec["files"].items():
            self.files[_beside(place, posixpath.relpath(path, folder))] = self.fetch(digest)
        kept = ("requirements", "secrets", "cases")
        more = {key: list(spec[key]) for key in kept if spec.get(key)}
        network = {"network": spec["network"]} if spec.get("network", "none") != "none" else {}
        function = {"function": spec["function"]} if spec["function"] != "reward" else {}
        return {"file": posixpath.basename(spec["entry"]), **function, **network, **more}

    def _environment(self, name: str, spec: Mapping[str, Any], place: str) -> dict[str, Any]:
        for path, digest in spec["files"].items():
            self.files[_beside(place, f"{name}/{path}")] = self.fetch(digest)
        own = {"source": name, "entrypoint": spec["entrypoint"]}
        if spec.get("multi_agent"):
            own["multi_agent"] = True
        if spec.get("requirements"):
            own["requirements"] = f"{name}-requirements.txt"
            self.files[_beside(place, own["requirements"])] = "".join(
                f"{line}\n" for line in spec["requirements"]
            ).encode()
        if spec.get("env_config"):
            own["config"] = f"{name}-config.yaml"
            self.files[_beside(place, own["config"])] = block.text(spec["env_config"]).encode()
        return own

    def _experiment(self, name: str, spec: Mapping[str, Any], place: str) -> dict[str, Any]:
        manifest = f"manifests/{name.replace('-', '_')}.yaml"
        self.files[manifest] = block.text(_manifest(spec)).encode()
        own: dict[str, Any] = {"manifest": posixpath.relpath(manifest, posixpath.dirname(place) or ".")}
        if spec.get("project"):
            own["project"] = spec["project"]
        for slot in ("dataset", "environment", "reward"):
            if (part := spec["inputs"].get(slot)) and part.get("address"):
                own[slot] = part["address"].partition("/")[2]
        if base := spec["inputs"].get("base"):
            own["base"] = {"experiment": base["experiment"], "checkpoint": base["checkpoint"]}
        budget = spec.get("budget") or {}
        ceilings = {
            "max_runtime": None if budget.get("max_runtime_s") is None else f"{budget['max_runtime_s']:g}s",
            "max_credits": budget.get("max_credits"),
        }
        more = {
            "model": {"revision": pin} if (pin := (spec.get("model") or {}).get("revision")) else None,
            "tier": spec.get("tier"),
            "num_nodes": spec["num_nodes"] if spec.get("num_nodes", 1) != 1 else None,
            "budget": _said(ceilings) or None,
            "retry": spec.get("retry") or None,
            "on_upstream_change": spec.get("on_upstream_change") or None,
            "rerun": spec.get("rerun") or None,
            **{name: spec.get(name) or None for name in ("trainer", "region", "priority", "notes", "notify")},
            "reuse": False if spec.get("reuse") is False else None,
        }
        return own | _said(more)

    def _deployment(self, _name: str, spec: Mapping[str, Any], _place: str) -> dict[str, Any]:
        more = {
            "best": spec.get("best"),
            "gate": _said(spec["gate"]) if spec.get("gate") else None,
            "strategy": spec.get("strategy") or None,
            "tier": spec.get("tier"),
            "engine": spec.get("engine"),
        }
        return {"experiment": spec["experiment"], "checkpoint": spec.get("checkpoint", "best"), **_said(more)}


def _manifest(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored, without what nobody wrote: the defaults come back by themselves."""
    defaulted = frozenset(spec.get("defaulted") or ())

    def kept(tree: Mapping[str, Any], at: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in tree.items():
            if value is None or f"{at}{key}" in defaulted:
                continue
            inner = kept(value, f"{at}{key}.") if isinstance(value, Mapping) and value else value
            if inner != {} or value == {}:
                found[key] = inner
        return found

    return kept(spec["manifest"])


def _envelope(spec: Mapping[str, Any]) -> dict[str, Any]:
    labels = {key: value for key, value in (spec.get("labels") or {}).items() if key != SHOWN}
    lifecycle = {key: value for key, value in (spec.get("lifecycle") or {}).items() if value}
    found = {"description": spec.get("description"), "labels": labels, "owner": spec.get("owner")}
    found["lifecycle"] = lifecycle or None
    return {key: value for key, value in found.items() if value}


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _beside(place: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
