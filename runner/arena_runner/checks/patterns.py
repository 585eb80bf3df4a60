"""The forms that a reward's own source asks for: its regular expressions read backwards, and its line beginnings.

`<sql>(.*?)</sql>` asks for an answer between two tags. The source is parsed, never run, and no pattern is matched
against anything; what cannot be read backwards is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

sre: Any = import_module("re._parser")
"""the parser of `re` with its constants; since Python 3.11 under this name"""
LOOKING = frozenset(
    {"startswith", "partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "rindex"}
)
"""methods of text whose first argument may say where an answer begins"""
MOST, LONGEST = 6, 300
"""forms taken, and characters of a pattern that is looked at"""


def own_forms(sources: Iterable[str]) -> dict[str, str]:
    """Name → form, with `{final}` or `{answer}` where the answer goes."""
    found: dict[str, str] = {}
    for source in sources:
        for before, after in _frames(source):
            if len(found) >= MOST:
                break
            shown = " ".join(f"{before}…{after}".split())
            frame = (_escaped(before), _escaped(after))
            found[f"as its own pattern asks, {shown}"] = "{final}".join(frame)
            found[f"whole, as its own pattern asks, {shown}"] = "{answer}".join(frame)
    return found


def _frames(source: str) -> Iterator[tuple[str, str]]:
    """What stands before and after an answer."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    seen: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        frame = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "(" in node.value:
            frame = _read_backwards(node.value)
        elif isinstance(node, ast.Call) and _looks_for_words(node):
            first = node.args[0]
            frame = (f"{first.value!s} ", "") if isinstance(first, ast.Constant) else None
        if frame is not None and any(part.strip() for part in frame) and frame not in seen:
            seen.add(frame)
            yield frame


def _looks_for_words(node: ast.Call) -> bool:
    named = isinstance(node.func, ast.Attribute) and node.func.attr in LOOKING
    given = node.args[0] if node.args else None
    text = given.value if isinstance(given, ast.Constant) else None
    return named and isinstance(text, str) and len(text.strip()) > 1


def _read_backwards(pattern: str) -> tuple[str, str] | None:
    """The shortest text around the only group of a pattern; None where there is not one group."""
    if len(pattern) > LONGEST:
        return None
    try:
        parsed = sre.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    if parsed.state.groups != 2:  # the whole match counts as one
        return None
    text = "".join(_texts(parsed))
    before, group, after = text.partition("\0")
    return (before, after) if group else None


def _texts(items: Any) -> Iterator[str]:
    """One text that the items match, with NUL for the group."""
    for kind, value in items:
        if kind is sre.LITERAL:
            yield chr(value)
        elif kind is sre.SUBPATTERN and value[0] is not None:
            yield "\0"
        elif kind is sre.SUBPATTERN:
            yield from _texts(value[3])
        elif kind in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
            yield from list(_texts(value[2])) * min(value[0], 3)
        elif kind is sre.BRANCH:
            yield from _texts(value[1][0])
        elif kind is sre.IN:
            yield _one_of(value)
        elif kind is sre.ANY:
            yield "x"


def _one_of(choices: Any) -> str:
    for kind, value in choices:
        if kind is sre.LITERAL:
            return chr(value)
        if kind is sre.RANGE:
            return chr(value[0])
        if kind is sre.CATEGORY:
            return {sre.CATEGORY_DIGIT: "1", sre.CATEGORY_WORD: "x"}.get(value, " ")
    return " "


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
