"""Bring the values of older dialects, and the defaults that depend on other values, to the normal form.

Works on the canonical document, before any section is validated; a value of an unexpected type is left for
validation to report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena_gitops.errors import Problem
from arena_gitops.spec.manifest.dialects import ENV_TYPES, Canonical, canonical_path
from arena_gitops.spec.manifest.names import Published
from arena_gitops.spec.numbers import read_int

_NETWORK_FIELDS = {
    "pretrained_model_name_or_path": "pretrained_model_name_or_path",
    "max_model_len": "max_context_length",
    "lora_config": "lora_config",
}
"""Fields a text manifest may also write under `algorithm` → where they belong."""


def override(document: Canonical, overrides: Mapping[str, Any]) -> None:
    """Put the values of an experiment's `set:` in place, by canonical path."""
    for key, value in overrides.items():
        path = canonical_path(key)
        here: Any = document.sections
        if path[0] not in document.sections:
            document.overrides[path[:1]] = key
        for part in path[:-1]:
            here = here.setdefault(part, {}) if isinstance(here, dict) else None
            if here is None:
                break
        if len(path) < 2 or not isinstance(here, dict):
            message = "expected SECTION.FIELD, for example training.max_steps"
            document.problems.append(Problem(path, message, "invalid-override", override=key))
            continue
        here[path[-1]] = value
        document.overrides[path] = key


def modernise(document: Canonical, algorithm: Published) -> None:
    """Rewrite what older dialects said with other fields or values."""
    environment = document.section("environment")
    if algorithm.family == "text" and isinstance(kind := environment.get("env_type"), str):
        environment.update(ENV_TYPES.get(kind, {}))
    knobs = document.section("algorithm")
    if algorithm.family == "text":
        for name, target in _NETWORK_FIELDS.items():
            if name in knobs:
                document.move(("algorithm", name), ("network", target))
    _clip_pair(document, knobs)
    _kl_flag(document, knobs)
    network = document.section("network")
    if "arch" in network and isinstance(network.get("encoder_config", {}), dict):
        network["encoder_config"] = {"arch": network.pop("arch"), **network.get("encoder_config", {})}


def fill(document: Canonical, algorithm: Published) -> None:
    """Fill defaults that depend on the dialect, the algorithm, or another field."""
    sections = document.sections
    for name in ("training", "mutation", "selection"):
        if sections.get(name) is None:
            sections[name] = {}
    environment = document.section("environment")
    environment.setdefault("env_type", algorithm.env_type)
    if algorithm.objective is not None:
        environment.setdefault("objective", algorithm.objective)
    if sections["mutation"] == {}:
        sections["mutation"] = {"probabilities": {"no_mut": 1.0, "rl_hp_mut": 0.0}}
        if algorithm.family == "gym":
            sections["mutation"]["probabilities"] |= {"arch_mut": 0.0, "new_layer": 0.0, "params_mut": 0.0}
    training = document.section("training")
    if algorithm.family == "gym":
        _without_nulls(training)
    training.setdefault("hpo", not document.versioned)
    if training.get("evo_steps") is None:
        training["evo_steps"] = min(algorithm.evo_steps, _int(training.get("max_steps"), algorithm.evo_steps))
    if training.get("evaluation_interval") is None:
        training["evaluation_interval"] = training["evo_steps"]


def _without_nulls(training: dict[str, Any]) -> None:
    """Absent is what the published null means, where ours has a value."""
    for name in ("learning_delay", "eps_start", "eps_end", "eps_decay"):
        if training.get(name) is None:
            training.pop(name, None)


def _clip_pair(document: Canonical, knobs: dict[str, Any]) -> None:
    pair = knobs.get("clip_coef")
    if isinstance(pair, list | tuple) and len(pair) == 2:
        knobs["clip_coef"], high = pair
        knobs.setdefault("clip_coef_high", high)
        origin = document.written.get(("algorithm", "clip_coef"), ("algorithm", "clip_coef"))
        document.written[("algorithm", "clip_coef")] = (*origin, 0)
        document.written.setdefault(("algorithm", "clip_coef_high"), (*origin, 1))
        if key := document.overrides.get(("algorithm", "clip_coef")):
            document.overrides.setdefault(("algorithm", "clip_coef_high"), key)


def _kl_flag(document: Canonical, knobs: dict[str, Any]) -> None:
    flag = knobs.get("use_bias_correction_kl")
    if isinstance(flag, bool):
        knobs["use_bias_correction_kl"] = "k3_is" if flag else "k3"
        document.move(("algorithm", "use_bias_correction_kl"), ("algorithm", "kl_estimator"))


def _int(value: Any, default: int) -> int:
    try:
        return read_int(value)
    except ValueError:
        return default
