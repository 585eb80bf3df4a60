"""A manifest to begin with: this server's defaults for an algorithm, in the dialect of the published client."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from arena_gitops.spec.manifest import ManifestError, parse_manifest
from arena_gitops.spec.manifest.names import PUBLISHED, Published, canonical_name
from arena_runner.server.refusals import RefusedError

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""What the published tutorial trains."""
CONTEXT = 1024
REWARD_FILE = "reward.py"
SECTIONS = (
    "algorithm",
    "environment",
    "training",
    "mutation",
    "tournament_selection",
    "network",
    "replay_buffer",
)
RENAMED = {"selection": "tournament_selection"}
OURS = {
    "algorithm": ("normalization", "kl_estimator", "clip_coef_high", "label_smoothing"),
    "training": ("eval_rows", "test_rows", "eval_episodes", "test_episodes"),
    "tournament_selection": ("strategy",),
}
"""Knobs of this project, which one of the published clients does not know and so refuses."""
FIELDS = {"reward_file_path": "rubric_file_path", "reward_fn_name": "rubric_name"}


def default(
    algorithm: str,
    *,
    environment: str | None = None,
    entrypoint: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
) -> dict[str, JsonValue]:
    """A manifest with every default written out, the algorithm named as it was asked for: names differ by client.

    Raises:
        RefusedError: 422 for an algorithm nobody knows.
    """
    known = PUBLISHED.get(canonical_name(algorithm) or "")
    if known is None:
        message = f"no algorithm {algorithm!r}; there are: {', '.join(sorted(PUBLISHED))}"
        raise RefusedError(422, "unknown-algorithm", message)
    raw: dict[str, Any] = {"algorithm": {"name": known.name}, "training": {}}
    if known.family == "text":
        raw["environment"] = _text_environment(known, dataset)
        raw["network"] = {"pretrained_model_name_or_path": model or MODEL, "max_context_length": CONTEXT}
    else:
        raw["environment"] = _gym_environment(known, environment, entrypoint)
    try:
        normal = parse_manifest(raw).manifest.normal()
    except ManifestError as problem:
        raise RefusedError(422, "bad-request", "; ".join(str(one) for one in problem.problems)) from problem
    found = _published(normal)
    found["algorithm"] = {**found["algorithm"], "name": algorithm}  # type: ignore[dict-item]  # a section
    return found


def section(spec: dict[str, JsonValue], name: str) -> JsonValue:
    """One part of a manifest; 422 for a part there cannot be."""
    if name not in SECTIONS:
        message = f"no section {name!r}; there are: {', '.join(SECTIONS)}"
        raise RefusedError(422, "bad-request", message)
    return spec.get(name, {})


def _text_environment(known: Published, dataset: str | None) -> dict[str, Any]:
    environment: dict[str, Any] = {"env_type": known.env_type}
    if dataset:
        environment["dataset"] = dataset
    if known.objective:
        return {**environment, "objective": known.objective}
    template = {"user_0": "{question}"}
    return {**environment, "rubric_file_path": REWARD_FILE, "prompt_template": template}


def _gym_environment(known: Published, name: str | None, entrypoint: str | None) -> dict[str, Any]:
    environment: dict[str, Any] = {"env_type": known.env_type, "name": name or "CartPole-v1"}
    return {**environment, "entrypoint": entrypoint, "custom": True} if entrypoint else environment


def _published(normal: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Names as the client has them, without what nobody wrote and what only we know."""
    found: dict[str, JsonValue] = {}
    for name, fields in normal.items():
        title = RENAMED.get(name, name)
        if title not in SECTIONS or not isinstance(fields, dict):
            continue
        kept = {FIELDS.get(k, k): v for k, v in fields.items() if k not in OURS.get(title, ())}
        found[title] = _without_nulls(kept)
    return found


def _without_nulls(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(part) for key, part in value.items() if part is not None}
