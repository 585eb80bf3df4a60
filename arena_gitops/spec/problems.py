"""One way to read any document: all problems at once, by path, in plain words, with near matches.

Kinds, `arena.yaml` and the sections of a manifest all go through `parse`; nobody else handles pydantic's
errors. Paths are those of the raw document, so that `repo` can point at file, line and column.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arena_gitops.errors import InvalidDocumentError, Problem
from arena_gitops.spec.descriptions import descriptions
from arena_gitops.spec.fields import IN_WORDS
from arena_gitops.spec.numbers import shown

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "int_type": "an integer",
    "float_type": "a number",
    "none_required": "nothing",
    "invalid_key": "text as a key",
    "finite_number": "a finite number",
}
"""pydantic's error type → what the value should have been."""


_SIGN = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}


def parse(model: type[M], raw: object, *, at: Path = ()) -> M:
    """Validate `raw` against `model`; raises InvalidDocumentError with every problem, paths below `at`."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InvalidDocumentError(_problems(model, raw, error, at)) from error


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, if one is near enough to be meant."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint: the near match, else the known words when there are few."""
    known = sorted(known)
    if match := near(word, known):
        return f"did you mean {match!r}?"
    return f"known: {', '.join(known)}" if len(known) <= 24 else ""


def _problems(model: type[BaseModel], raw: object, error: ValidationError, at: Path) -> list[Problem]:
    found: dict[Path, list[Problem]] = {}
    for details in error.errors(include_url=False):
        path = _path(details, raw)
        found.setdefault(path, []).append(_translate(model, details, path, at))
    return [_either(problems) for problems in found.values()]


def _either(problems: list[Problem]) -> Problem:
    """One problem for one place: the branches of a union each report, a person wants one sentence."""
    first = problems[0]
    if len(problems) == 1:
        return first
    messages = dict.fromkeys(problem.message for problem in problems)
    return Problem(first.path, "; or ".join(messages), first.code, first.hint)


def _path(details: ErrorDetails, raw: object) -> Path:
    """The location without pydantic's own components (union branches, `[key]`), which no document has."""
    path: list[str | int] = []
    here = raw
    for part in details["loc"]:
        if _holds(here, part):
            here = here[part]  # type: ignore[index]  # it was just seen to hold the part
        elif not (details["type"] == "missing" and part == details["loc"][-1]):
            continue
        path.append(part)
    return tuple(path)


def _holds(container: object, part: str | int) -> bool:
    if isinstance(container, Mapping):
        return part in container
    return isinstance(container, list | tuple) and isinstance(part, int) and part < len(container)


def _translate(model: type[BaseModel], details: ErrorDetails, path: Path, at: Path) -> Problem:
    kind = details["type"]
    name = str(path[-1]) if path else "the document"
    if kind == "missing":
        return Problem((*at, *path), f"{name!r} is missing", "missing-key", _described(model, path))
    if kind == "extra_forbidden":
        known = _known_keys(model, path[:-1])
        return Problem((*at, *path), f"unknown key {name!r}", "unknown-key", suggestion(name, known))
    return Problem((*at, *path), _message(details), "invalid-value", _hint(details))


def _message(details: ErrorDetails) -> str:
    kind, given, context = details["type"], shown(details["input"]), details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in {"string_too_short", "too_short"}:
        return "must not be empty"
    if expected := _expected(kind, context):
        return f"expected {expected}, got {given}"
    return details["msg"]


def _expected(kind: str, context: dict[str, Any]) -> str | None:
    match kind:
        case "literal_error" | "enum":
            return str(context["expected"])
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            (bound,) = (value for key, value in context.items() if key in {"gt", "ge", "lt", "le"})
            return f"a number {_SIGN[kind]} {bound:g}"
        case "string_pattern_mismatch":
            pattern = str(context["pattern"])
            return IN_WORDS.get(pattern, f"text matching {pattern}")
        case _:
            return _EXPECTED.get(kind)


def _hint(details: ErrorDetails) -> str:
    kind, given = details["type"], details["input"]
    if kind == "string_type" and not isinstance(given, dict | list | None):
        return "put the value in quotes"
    if (
        kind == "bool_type"
        and isinstance(given, str)
        and given.lower() in {"yes", "no", "on", "off", "y", "n"}
    ):
        return "YAML 1.2 reads this as text; write true or false"
    if kind in {"literal_error", "enum"} and isinstance(given, str):
        words = [
            word.strip("' ") for word in details.get("ctx", {})["expected"].replace(" or ", ",").split(",")
        ]
        match = near(given, words)
        return f"did you mean {match!r}?" if match else ""
    return ""


def _described(model: type[BaseModel], path: Path) -> str:
    for owner in _models_at(model, path[:-1]):
        if text := descriptions(owner).get(str(path[-1])):
            return text
    return ""


def _known_keys(model: type[BaseModel], path: Path) -> set[str]:
    return {
        field.alias or name for owner in _models_at(model, path) for name, field in owner.model_fields.items()
    }


def _models_at(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    """The models that may describe the mapping at `path`; several below a union."""
    models = [model]
    for part in path:
        fields = [
            field
            for owner in models
            for name, field in owner.model_fields.items()
            if part in {name, field.alias}
        ]
        if fields:  # otherwise `part` is a key of a plain mapping or an index, and the models stay
            models = [found for field in fields for found in models_in(field.annotation)]
    return models


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The document models an annotation names, through unions and containers."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in models_in(inner)]
