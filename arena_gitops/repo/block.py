"""Plain data as YAML in block style, as people write it; what is read back is what was given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
"""Plain text that some reader of YAML takes for something else."""


def text(value: Mapping[str, Any]) -> str:
    """The lines of a mapping."""
    return "\n".join(_mapping(value, "")) + "\n"


def _mapping(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield f"{indent}{_scalar(key)}:"
            yield from _mapping(inner, indent + "  ")
        elif isinstance(inner, (list, tuple)) and any(isinstance(item, Mapping) for item in inner):
            yield f"{indent}{_scalar(key)}:"
            yield from _items(inner, indent + "  ")
        else:
            yield f"{indent}{_scalar(key)}: {_flow(inner)}"


def _items(items: list[Any] | tuple[Any, ...], indent: str) -> Iterator[str]:
    for item in items:
        lines = [*_mapping(item, "")] if isinstance(item, Mapping) and item else [_flow(item)]
        yield f"{indent}- {lines[0]}"
        yield from (f"{indent}  {line}" for line in lines[1:])


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
