"""Which classes of a folder are environments, found by reading the source; nothing is imported.

A class is one when it derives from a known environment class, directly or through classes of the folder, or when
it defines `reset` and `step` itself. Wrappers and classes that others of the folder derive from are not offered.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

KNOWN = {"Env", "VectorEnv", "ParallelEnv", "AECEnv", "MultiAgentEnv"}
"""Last parts of the names of classes that environments derive from."""
WRAPPER = "Wrapper"
ACTS = {"reset", "step"}


@dataclass(frozen=True, slots=True)
class _Class:
    """A class at the top level of a module."""

    module: str
    name: str
    bases: tuple[str, ...]
    methods: frozenset[str]


def entrypoints(sources: Mapping[str, str]) -> list[str]:
    """`module:Class` of every environment among the Python files, by POSIX path; a file that does not parse has none."""
    classes = [one for path, text in sources.items() for one in _classes(path, text)]
    known: dict[str, _Class] = {}
    for one in classes:
        known.setdefault(one.name, one)
    found = [one for one in classes if _is_environment(one, known, frozenset())]
    ancestors = {base for one in found for base in one.bases}
    return sorted(f"{one.module}:{one.name}" for one in found if one.name not in ancestors)


def module_of(path: str) -> str:
    """The dotted name by which a file is imported from the folder's root."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _classes(path: str, text: str) -> list[_Class]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return []
    return [_class(module_of(path), node) for node in body if isinstance(node, ast.ClassDef)]


def _class(module: str, node: ast.ClassDef) -> _Class:
    bases = tuple(filter(None, (_last_name(base) for base in node.bases)))
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    return _Class(module, node.name, bases, frozenset(methods))


def _last_name(node: ast.expr) -> str:
    """`Env` of `gymnasium.Env[Obs, Act]`."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_environment(one: _Class, known: Mapping[str, _Class], seen: frozenset[str]) -> bool:
    if one.name in seen or any(base.endswith(WRAPPER) for base in one.bases):
        return False
    if one.methods >= ACTS or not KNOWN.isdisjoint(one.bases):
        return True
    parents = (known[base] for base in one.bases if base in known)
    return any(_is_environment(parent, known, seen | {one.name}) for parent in parents)
