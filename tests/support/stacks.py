"""Small stacks for tests: desired states as the repository room would make them, without a repository.

Everything a real server wants is in them (normal manifests, inputs by digest, blobs), so the contract suite can
use them against any platform. Changing a stack is building it again with other arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.spec.digest import Fingerprint, sha256_bytes
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.manifest import parse_manifest
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, Provenance
from arena_gitops.state import Blob, DesiredResource, DesiredState, Policy, TargetSpec

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = "question,answer\n" + "".join(f"What is {n} + {n}?,#### {2 * n}\n" for n in range(40))
REWARD = "def reward(question, answer, completion):\n    return float(answer.split()[-1] in completion)\n"

MANIFEST: dict[str, Any] = {
    "algorithm": {"name": "GRPO", "batch_size": 4, "group_size": 8, "lr": 1e-5, "max_output_tokens": 16},
    "environment": {"name": "words"},
    "training": {"max_steps": 1000, "evo_steps": 5, "pop_size": 2},
    "network": {"pretrained_model_name_or_path": "tiny", "max_context_length": 128},
}


def manifest(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The normal form of a small GRPO manifest, with dotted paths changed."""
    raw = deepcopy(MANIFEST)
    for path, value in (changes or {}).items():
        put_at(raw, path, value)
    return parse_manifest(raw).manifest.normal()


def defaulted(changes: Mapping[str, Any] | None = None) -> list[str]:
    """Paths of the normal form that neither the small manifest nor the changes write."""
    raw = deepcopy(MANIFEST)
    for path, value in (changes or {}).items():
        put_at(raw, path, value)
    written = set(_leaves(raw))
    return [path for path in _leaves(manifest(changes)) if path not in written]


def _leaves(tree: Mapping[str, Any], at: str = "") -> Iterable[str]:
    for key, value in sorted(tree.items()):
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}"


def put_at(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path."""
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
    tree[last] = value


def spans_of(spec: Mapping[str, Any], file: str, at: tuple[str, ...] = (), line: int = 1) -> dict[str, Span]:
    """A place for every field, one line each, in the order of the keys."""
    found: dict[str, Span] = {}
    for key, value in spec.items():
        line += 1
        found[".".join((*at, key))] = Span(file, line, 3)
        if isinstance(value, Mapping):
            inner = spans_of(value, file, (*at, key), line)
            found |= inner
            line = max((span.line for span in inner.values()), default=line)
    return found


@dataclass
class Stack:
    """A repository being written."""

    name: str = "team"
    namespace: str = "main"
    policy: Policy = field(default_factory=Policy)
    notes: tuple[Diagnostic, ...] = ()
    dirty: bool = False
    resources: dict[Address, DesiredResource] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        return Owner(stack=self.name, namespace=self.namespace)

    def state(self) -> DesiredState:
        """What the loader would have made of it."""
        return DesiredState(
            owner=self.owner,
            resources=dict(self.resources),
            notes=self.notes,
            policy=self.policy,
            targets={"prod": TargetSpec("prod", "http"), "local": TargetSpec("local", "local")},
            default_target="prod",
            provenance=Provenance(commit=COMMIT, dirty=self.dirty),
        )

    def without(self, address: str) -> Stack:
        """The same with one file removed."""
        self.resources.pop(Address.parse(address))
        return self

    def project(self, name: str = "words", **fields: Any) -> Stack:
        return self._add("project", name, {"description": "", "llm_based": True, **fields})

    def dataset(self, name: str = "words", rows: str = ROWS, **fields: Any) -> Stack:
        blob = _blob(f"data/{name}.csv", rows)
        spec = {
            "description": "",
            "category": "reasoning",
            "column_mapping": {"question": "question", "answer": "answer"},
            "digest": blob.digest,
            "format": "csv",
            **fields,
        }
        return self._add("dataset", name, spec, blobs=[blob])

    def reward(self, name: str = "exact", source: str = REWARD, **fields: Any) -> Stack:
        blob = _blob(f"rewards/{name}.py", source)
        file = f"rewards/{name}.py"
        spec = {
            "description": "",
            "files": {file: blob.digest},
            "entry": file,
            "function": "reward",
            **fields,
        }
        return self._add("reward", name, spec, blobs=[blob])

    def experiment(
        self,
        name: str = "words-grpo",
        *,
        dataset: str = "words",
        reward: str = "exact",
        base: str | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as experiment files name it
        **fields: Any,
    ) -> Stack:
        parents = [Address("dataset", dataset), Address("reward", reward)]
        parents += [Address("experiment", base)] if base else []
        spec: dict[str, Any] = {
            "description": "",
            "labels": {},
            "owner": None,
            "lifecycle": {},
            "project": None,
            "manifest": manifest(set),
            "defaulted": defaulted(set),
            "inputs": self._inputs(dataset, reward, base),
            "model": {"id": "tiny", "revision": None},
            "tier": None,
            "num_nodes": 1,
            "budget": {},
            "retry": {},
            "on_upstream_change": {},
            **fields,
        }
        return self._add("experiment", name, spec, parents=parents)

    def deployment(self, name: str = "words", *, experiment: str = "words-grpo", **fields: Any) -> Stack:
        spec: dict[str, Any] = {
            "description": "",
            "labels": {},
            "owner": None,
            "lifecycle": {},
            "experiment": experiment,
            "checkpoint": "best",
            "gate": None,
            "strategy": {},
            "tier": None,
            **fields,
        }
        return self._add("deployment", name, spec, parents=[Address("experiment", experiment)])

    def _inputs(self, dataset: str, reward: str, base: str | None) -> dict[str, Any]:
        data = self.resources[Address("dataset", dataset)].spec
        code = self.resources[Address("reward", reward)].spec
        return {
            "dataset": {
                "address": f"dataset/{dataset}",
                "category": data["category"],
                "column_mapping": data["column_mapping"],
                "digest": data["digest"],
                "format": data["format"],
                "hf": None,
            },
            "reward": {
                "address": f"reward/{reward}",
                "files": code["files"],
                "entry": code["entry"],
                "function": code["function"],
                "requirements": [],
                "network": "none",
                "secrets": [],
                "cases": [],
            },
            "environment": None,
            "base": {"experiment": base, "checkpoint": "best", "merge": False, "files": {}} if base else None,
        }

    def _add(
        self,
        kind: str,
        name: str,
        spec: dict[str, Any],
        *,
        parents: Iterable[Address] = (),
        blobs: Iterable[Blob] = (),
    ) -> Stack:
        address, parents = Address(kind, name), tuple(parents)
        file = f"{kind}s/{name}.yaml"
        spans = spans_of({key: value for key, value in spec.items() if key != "manifest"}, file)
        if "manifest" in spec:
            spans |= spans_of(spec["manifest"], f"manifests/{name}.yaml", ("manifest",))
        self.resources[address] = DesiredResource(
            address=address,
            spec=spec,
            fingerprint=self._fingerprint(kind, spec, parents),
            depends_on=parents,
            parents=tuple((parent, self.resources[parent].fingerprint) for parent in parents),
            blobs=tuple(blobs),
            span=Span(file, 1, 1),
            spans=spans,
            provenance=Provenance(commit=COMMIT, path=file, dirty=self.dirty),
        )
        return self

    def _fingerprint(self, kind: str, spec: dict[str, Any], parents: tuple[Address, ...]) -> Fingerprint:
        known = [self.resources[parent].fingerprint for parent in parents]
        return fingerprint_of(kind, spec, known)


def small(**experiment: Any) -> Stack:
    """The usual stack: one of each kind, the experiment as you like it."""
    return Stack().project().dataset().reward().experiment(**experiment).deployment()


def _blob(path: str, text: str) -> Blob:
    data = text.encode()
    return Blob(digest=sha256_bytes(data), path=Path(path), size=len(data), data=data)
