"""The published dialects, brought to one: names of sections and fields, and a few values that moved.

Three ages of the same document are accepted (`tournament_selection`, `env_type: reasoning`, and the current
`agilerl.com/v1`). Every value keeps the path at which its author wrote it, so that a message about the
canonical document points at the written one.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from arena_gitops.errors import Problem

API_VERSION = "agilerl.com/v1"

Path = tuple[str | int, ...]

SECTIONS: dict[str, str] = {
    "tournament_selection": "selection",
    "selection_strategy": "selection",
    "tournament": "selection",
}
"""Other names of a section → ours."""

FIELDS: dict[str, dict[str, str]] = {
    "training": {"metrics_interval": "evo_steps", "population_size": "pop_size"},
    "replay_buffer": {"memory_size": "max_size"},
    "environment": {
        "rubric_file_path": "reward_file_path",
        "rubric_name": "reward_fn_name",
        "config": "env_config",
        "wrappers": "env_wrappers",
    },
    "algorithm": {"answer_pattern": "constrain_answer_pattern"},
}
"""Section → other names of its fields → ours."""

ENV_TYPES: dict[str, dict[str, str]] = {
    "reasoning": {"env_type": "rollout"},
    "multiturn": {"env_type": "rollout"},
    "preference": {"env_type": "dataset", "objective": "preference"},
    "sft": {"env_type": "dataset", "objective": "sft"},
}
"""Older values of `environment.env_type` → what they mean now."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_OLDEST = {"INIT_HP", "MUTATION_PARAMS", "NET_CONFIG"}


@dataclass(slots=True)
class Canonical:
    """A manifest under canonical names, and where each of them was written."""

    sections: dict[str, Any]
    versioned: bool
    """whether it states `apiVersion`; the default of `training.hpo` depends on it"""
    written: dict[Path, Path] = field(default_factory=dict)
    overrides: dict[Path, str] = field(default_factory=dict)
    """canonical path → key of `set:` that put the value there"""
    problems: list[Problem] = field(default_factory=list)

    def place(self, problem: Problem) -> Problem:
        """The same problem at the path its author wrote, or at the override that caused it."""
        path = problem.path
        for length in range(len(path), 0, -1):
            head = path[:length]
            if head in self.overrides:
                return Problem(path, problem.message, problem.code, problem.hint, self.overrides[head])
            if head in self.written:
                return Problem(
                    (*self.written[head], *path[length:]), problem.message, problem.code, problem.hint
                )
        return problem

    def section(self, name: str) -> dict[str, Any]:
        """The fields of a section; empty when it is absent or not a mapping (reported elsewhere)."""
        found = self.sections.get(name)
        return found if isinstance(found, dict) else {}

    def move(self, path: Path, to: Path) -> None:
        """Move a value to another section or name, unless both are written and disagree."""
        (section, name), (target, new_name) = map(str, path), map(str, to)
        value = self.section(section).pop(name)
        where = self.sections.setdefault(target, {})
        origin = self.written.pop(path, path)
        if not isinstance(where, dict):
            return
        if new_name in where and where[new_name] != value:
            other = ".".join(str(part) for part in self.written.get(to, to))
            self.problems.append(
                Problem(origin, f"written twice with different values, here and as {other}", "written-twice")
            )
            return
        where[new_name] = value
        self.written[to] = origin
        if path in self.overrides:
            self.overrides[to] = self.overrides.pop(path)


def canonical(raw: Mapping[str, Any]) -> Canonical:
    """Bring a manifest of any published dialect under canonical names."""
    result = Canonical({}, versioned="apiVersion" in raw or "api_version" in raw)
    for key, value in raw.items():
        if key in {"apiVersion", "api_version"}:
            _check_version(result, key, value)
            continue
        _add_section(result, key, value)
    return result


def is_oldest(raw: Mapping[str, Any]) -> bool:
    """Whether this is the dialect of AgileRL up to 2.7 (`INIT_HP`)."""
    return bool(_OLDEST & set(raw))


def canonical_path(dotted: str) -> Path:
    """A `set:` key (`tournament_selection.elitism`) as a canonical path."""
    section, *rest = dotted.split(".")
    section = SECTIONS.get(section, section)
    if rest:
        rest[0] = FIELDS.get(section, {}).get(rest[0], rest[0])
    return (section, *rest)


def _check_version(result: Canonical, key: str, value: object) -> None:
    if value != API_VERSION:
        result.problems.append(
            Problem(
                (key,), f"expected {API_VERSION!r}, got {value!r}", "api-version", "or leave the line out"
            )
        )


def _add_section(result: Canonical, key: str, value: Any) -> None:
    name = SECTIONS.get(key, key)
    if name in result.sections:
        first = result.written[(name,)][0]
        result.problems.append(
            Problem((key,), f"{key!r} and {first!r} are two names of one section", "written-twice")
        )
        return
    result.written[(name,)] = (key,)
    if not isinstance(value, Mapping):
        result.sections[name] = value
        return
    fields: dict[str, Any] = {}
    for written, field_value in value.items():
        field_name = FIELDS.get(name, {}).get(str(written), str(written))
        if field_name in fields:
            first = result.written[(name, field_name)][-1]
            result.problems.append(
                Problem(
                    (key, written), f"{written!r} and {first!r} are two names of one field", "written-twice"
                )
            )
            continue
        result.written[(name, field_name)] = (key, written)
        nested = isinstance(field_value, (dict, list))
        fields[field_name] = _copied(field_value) if nested else field_value  # overrides are put into it
    result.sections[name] = fields


def _copied(value: Any) -> Any:
    """A deep copy; of what YAML and JSON give, several times faster than the library's."""
    kind = type(value)
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if kind is list:
        return [_copied(item) for item in value]
    return value if kind in _PLAIN else deepcopy(value)
