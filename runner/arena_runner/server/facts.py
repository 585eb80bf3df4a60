"""What MLflow is told about a run and its members: names, tags with provenance, parameters. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.wire import ExperimentSpec, Provenance
from arena_runner.server.store.tables import RunRow

Facts = tuple[str, dict[str, str], dict[str, str]]
"""name, tags, and those tags by which the run is found again"""


def run_facts(run: RunRow) -> Facts:
    """The parent run: one for the whole life of a run, whatever restarts."""
    spec = ExperimentSpec.model_validate(run.spec)
    source = Provenance.model_validate(run.provenance)
    key = {"arena.run": run.id, "arena.kind": "run"}
    tags = {
        **key,
        "arena.address": f"experiment/{run.experiment}",
        "arena.namespace": run.namespace,
        "arena.version": str(run.version),
        "arena.fingerprint": run.fingerprint,
        "arena.manifest": sha256_json(spec.manifest),
        "arena.dirty": str(source.dirty).lower(),
        **_inputs(spec.inputs),
    }
    optional = {
        "arena.repo": source.repo,
        "arena.commit": source.commit,
        "arena.path": source.path,
        "arena.model": spec.model.id if spec.model else None,
        "arena.request": run.request_id,
        "mlflow.source.git.commit": source.commit,
        "mlflow.note.content": spec.description or None,
    }
    tags |= {name: value for name, value in optional.items() if value}
    return f"{run.experiment} v{run.version}", tags, key


def member_facts(run: RunRow, parent: str, member: int) -> Facts:
    """The child run of one member: a place, not an individual."""
    key = {"arena.run": run.id, "arena.kind": "member", "arena.member": str(member)}
    tags = {**key, "mlflow.parentRunId": parent, "arena.address": f"experiment/{run.experiment}"}
    tags |= {"arena.version": str(run.version), "arena.fingerprint": run.fingerprint}
    return f"m{member}", tags, key


def run_params(run: RunRow) -> dict[str, str]:
    """The effective manifest, flat. `max_steps` may be raised later, and a parameter can never change."""
    spec = ExperimentSpec.model_validate(run.spec)
    flat = dict(_flatten(spec.manifest))
    flat.pop("training.max_steps", None)
    return flat


def _inputs(inputs: JobInputs) -> dict[str, str]:
    tags: dict[str, str] = {}
    if dataset := inputs.dataset:
        hub = f"{dataset.hf.id}@{dataset.hf.revision or 'floating'}" if dataset.hf else ""
        tags["arena.dataset"] = f"{dataset.address} {dataset.digest or hub}"
    if inputs.reward:
        tags["arena.reward"] = f"{inputs.reward.address} {sha256_json(inputs.reward.files)}"
    if inputs.environment:
        place = inputs.environment.address or inputs.environment.gym_id
        tags["arena.environment"] = f"{place} {sha256_json(inputs.environment.files)}"
    if inputs.base:
        tags["arena.base"] = f"experiment/{inputs.base.experiment} {inputs.base.checkpoint}"
    return tags


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            name = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in str(key))
            yield from _flatten(inner, f"{path}.{name}" if path else name)
    elif value is not None:
        yield path, str(value)
