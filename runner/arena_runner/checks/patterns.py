"""The forms that a reward's own source asks for: its patterns read backwards, its marks, keys and templates.

`<sql>(.*?)</sql>` asks for an answer between two tags. The source is parsed, never run, and no pattern is matched
against anything; what cannot be read backwards is left out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from arena_runner.checks.mutants import REASONING, drawn
from arena_runner.checks.reading import LOOKING, UNREAD, Facts, parsed, texts

sre: Any = import_module("re._parser")
"""the parser of `re` with its constants; since Python 3.11 under this name"""
MOST, LONGEST = 24, 300
"""forms taken, and characters of a pattern that is looked at"""
LONG_GAP = 8
"""characters of any kind that are no gap yet"""
PARTS = 4
"""groups of one pattern that are filled with parts of an answer"""


def own_forms(sources: Iterable[str], known: Facts = UNREAD) -> dict[str, str]:
    """Name → form, with `{final}` and the like where the answer goes."""
    found: dict[str, str] = {}
    trees = [tree for source in sources if (tree := parsed(source)) is not None]
    for form in dict.fromkeys([*(f for tree in trees for f in _read(tree)), *_of_keys(known.keys)]):
        if len(found) >= MOST:
            break
        if not drawn(form):
            continue
        said = " ".join(re.sub(r"\{\w+\}", "…", form).replace("{{", "{").replace("}}", "}").split())
        name = f"as its own pattern asks, {said}"
        found[f"whole, {name}" if name in found else name] = form
    return found


def _read(tree: ast.Module) -> Iterator[str]:
    """Forms of one file; those that patterns with a group ask for come first."""
    names = _named_texts(tree)
    folded = [parts for node in ast.walk(tree) if len(parts := _folded(node, names)) > 1]
    patterns = [*texts(tree), *("".join("(.*)" if part is None else part for part in p) for p in folded)]
    for pattern in dict.fromkeys(patterns):
        yield from _read_backwards(pattern)
    for parts in folded:
        if None in parts and any(part and part.strip() for part in parts):
            yield "".join("{final}" if part is None else _escaped(part) for part in parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (mark := _looked_for(node)):
            yield from _around(mark)


def _named_texts(tree: ast.Module) -> dict[str, str]:
    """Constants of the module, by name."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _folded(node: ast.AST, names: dict[str, str]) -> list[str | None]:
    """The pieces of an f-string or a sum of texts, None where the source does not say; [] for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) if name in names:
            return [names[name]]
        case ast.JoinedStr(values=values):
            return [piece for value in values for piece in _folded(value, names) or [None]]
        case ast.FormattedValue(value=value):
            return _folded(value, names) or [None]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pieces = [_folded(left, names), _folded(right, names)]
            return [p for piece in pieces for p in piece or [None]] if any(pieces) else []
    return []


def _looked_for(node: ast.Call) -> str:
    named = isinstance(node.func, ast.Attribute) and node.func.attr in LOOKING
    given = node.args[0] if node.args else None
    text = given.value if isinstance(given, ast.Constant) else None
    return text if named and isinstance(text, str) and len(text.strip()) > 1 else ""


def _around(mark: str) -> Iterator[str]:
    """An answer after a mark, or between the tags that a bare name stands for."""
    yield f"{_escaped(mark)} {{final}}"
    yield f"{_escaped(mark)} {{answer}}"
    if re.fullmatch(r"<\w+>", mark):
        yield f"{mark}{{final}}</{mark[1:]}"
    elif re.fullmatch(r"\.?/?/?\w+", mark):
        name = mark.strip("./")
        yield f"<root><{name}>{{final}}</{name}></root>"


def _of_keys(keys: Sequence[str]) -> Iterator[str]:
    """JSON objects with all keys, the answer's parts under them or it under one; then a line `key: answer`."""
    if 1 < len(keys) <= PARTS:
        yield "{{" + ", ".join(f'{json.dumps(key)}: "{{part{n}}}"' for n, key in enumerate(keys)) + "}}"
    for key in keys:
        for value in ('"{final}"', "{final}", "{answer}"):
            pairs = [f"{json.dumps(k)}: {value if k == key else _filler(k)}" for k in keys]
            yield "{{" + ", ".join(pairs) + "}}"
    yield from (f"{key}: {{final}}" for key in keys)


def _filler(key: str) -> str:
    numbers = {"confidence": "0.5", "score": "0.5", "probability": "0.5"}
    return numbers.get(key.lower(), '"step by step"')


def _read_backwards(pattern: str) -> Iterator[str]:
    """The shortest texts around the groups of a pattern, one of which holds the answer, or all a part of it."""
    if len(pattern) > LONGEST or not re.search(r"[(\\\[]", pattern):
        return
    try:
        tree = sre.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return
    groups = range(1, tree.state.groups)  # the whole match counts as one
    fields = [{group: "final"} for group in reversed(groups)] + [{group: "answer"} for group in groups]
    if 1 < len(groups) <= PARTS:
        fields.insert(0, {group: f"part{group - 1}" for group in groups})
    if len(groups) == 1:
        fields.append({1: "part"})
    if not groups and (gaps := _Saying({}).gaps_of(tree)):
        fields = [{-gaps: "final"}, {-gaps: "answer"}]  # no group, so the last gap is where an answer goes
    for chosen in fields[: 2 * PARTS]:
        said = _Saying(chosen).all_of(tree)
        if re.sub(r"\{\w+\}|\s", "", said) and "{" in said:
            yield said


class _Saying:
    """Writes one text that a pattern matches, with a field in place of some groups."""

    def __init__(self, fields: dict[int, str]) -> None:
        self._fields = fields
        self._said: dict[int, str] = {}
        self._gaps = 0

    def gaps_of(self, items: Any) -> int:
        """How often anything at all may stand."""
        self.all_of(items)
        return self._gaps

    def all_of(self, items: Any) -> str:
        """Everything in turn."""
        return "".join(self._one(kind, value) for kind, value in items)

    def _one(self, kind: Any, value: Any) -> str:
        if kind is sre.SUBPATTERN:
            return self._group(value[0], value[3])
        if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
            if _is_gap(value):
                self._gaps += 1
                return f"{{{self._fields[-self._gaps]}}}" if -self._gaps in self._fields else REASONING
            said = self.all_of(value[2])
            wanted = 1 if any(f"{{{field}}}" in said for field in self._fields.values()) else 0
            return said * int(max(min(value[0], 3), min(wanted, value[1])))
        if kind is sre.GROUPREF:
            return str(self._said.get(value, ""))
        if kind in {sre.BRANCH, sre.ASSERT}:
            return self.all_of(value[1][0] if kind is sre.BRANCH else value[1])
        return self.all_of(value) if kind is sre.ATOMIC_GROUP else _escaped(_character(kind, value))

    def _group(self, number: int | None, items: Any) -> str:
        field = self._fields.get(number) if number is not None else None
        said = f"{{{field}}}" if field else self.all_of(items)
        if number is not None:
            self._said[number] = said
        return said


def _is_gap(repeat: Any) -> bool:
    """Whether many characters of any kind may stand here."""
    _, most, items = repeat
    if most <= LONG_GAP or len(items) != 1:
        return False
    kind, value = items[0]
    both = {(sre.CATEGORY, sre.CATEGORY_SPACE), (sre.CATEGORY, sre.CATEGORY_NOT_SPACE)}
    return kind is sre.ANY or (kind is sre.IN and (value[0][0] is sre.NEGATE or both <= set(value)))


def _character(kind: Any, value: Any) -> str:
    """One character; nothing for what has no width."""
    if kind is sre.LITERAL:
        return chr(value)
    if kind in {sre.ANY, sre.NOT_LITERAL}:
        return "x"
    return _one_of(value) if kind is sre.IN else ""


def _one_of(choices: Any) -> str:
    """One character of a set."""
    for kind, value in choices:
        if kind is sre.NEGATE:
            return "x"
        if kind is sre.LITERAL:
            return chr(value)
        if kind is sre.RANGE:
            return chr(value[0])
        if kind is sre.CATEGORY:
            return {sre.CATEGORY_DIGIT: "1", sre.CATEGORY_WORD: "x"}.get(value, " ")
    return " "


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
