"""What a reward's source says about itself: which arguments it reads, and the literals it looks for.

Facts for judging, read from the syntax tree; nothing is run. A reward that never reads the answer is meant for style,
one that reads it and pays no attention to it is not.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

KEYS, MARKS, LONGEST = 6, 24, 40
"""keys and marks that are taken, and characters of the longest"""
LOOKING = frozenset(
    {"startswith", "partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "rindex", "count"}
    | {"endswith", "removeprefix", "removesuffix", "findtext"}
)
"""methods of text whose first argument may say where an answer begins"""
DIRECTIVES = re.compile(r"\\|\(\?|\.\*|\.\+|\[\^|%[sd]|\{\}")
"""what makes a text a pattern or a template rather than something a completion would hold"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What reading a reward has shown."""

    reads_answer: bool = True
    """whether its function reads the argument; True also where that cannot be told"""
    reads_completion: bool = True
    reads_question: bool = False
    answer_lines: frozenset[int] = frozenset()
    """lines of the first file in which its function reads the answer"""
    dot_stops: bool = False
    """whether a pattern in it has a repeated dot that ends at a line break"""
    marks: tuple[str, ...] = ()
    """short literals that it may look for"""
    question_marks: tuple[str, ...] = ()
    """literals that it looks for in the question"""
    keys: tuple[str, ...] = ()
    """names it takes out of something, as out of JSON"""


UNREAD = Facts()
"""what is assumed of a source that was not read"""


def facts(sources: Iterable[str], function: str) -> Facts:
    """Read all files of a reward, its entry first."""
    trees = [tree for source in sources if (tree := parsed(source)) is not None]
    arguments = [found for tree in trees if (found := _arguments(tree, function)) is not None]
    question, answer, completion = arguments[0] if arguments else (False, True, True)
    constants = [text for tree in trees for text in texts(tree)]
    return Facts(
        reads_answer=answer,
        reads_completion=completion,
        reads_question=question,
        answer_lines=_answer_lines(trees[0], function) if trees else frozenset(),
        dot_stops=any(map(_dot_stops, trees)),
        marks=tuple(dict.fromkeys(text for text in constants if _is_mark(text)))[:MARKS],
        question_marks=_looked_for(trees[0], function) if trees else (),
        keys=tuple(dict.fromkeys(key for tree in trees for key in _keys(tree)))[:KEYS],
    )


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None for what does not parse, which is somebody else's error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text constant that is no docstring, in the order of the source."""
    spoken = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken
    ]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
        yield str(node.value)


def _arguments(tree: ast.Module, name: str) -> tuple[bool, bool, bool] | None:
    """Whether the function reads its question, answer and completion; None where it is not defined here."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if len(given) < 3 or node.decorator_list or _read(node) & {"locals", "vars"}:
                return False, True, True
            read = _read(node)
            return given[0] in read, given[1] in read, given[2] in read
    return None


def _answer_lines(tree: ast.Module, name: str) -> frozenset[int]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    lines: set[int] = set()
    for function in functions:
        given = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        lines |= {node.lineno for node in _loads(function) if node.id in given[1:2]}
    return frozenset(lines)


def _looked_for(tree: ast.Module, name: str) -> tuple[str, ...]:
    """What its function looks for in its first argument, by methods of text in a row."""
    found = []
    for function in (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name):
        given = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        for node in ast.walk(function):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=owner, attr=attr), args=[ast.Constant(value=str(mark)), *_]
                ) if attr in LOOKING and mark.strip() and _root(owner) in given[:1]:
                    found.append(mark.strip())
                case ast.Compare(
                    left=ast.Constant(value=str(mark)), ops=[ast.In()], comparators=[ast.Name(id=looked)]
                ) if mark.strip() and looked in given[:1]:
                    found.append(mark.strip())
    return tuple(dict.fromkeys(found))


def _root(node: ast.expr) -> str:
    """The name at the beginning of `name.method().method()[0]`."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=inner) | ast.Attribute(value=inner) | ast.Subscript(value=inner):
                node = inner
            case _:
                return ""
    return node.id


def _read(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in _loads(function)}


def _loads(function: ast.FunctionDef) -> Iterator[ast.Name]:
    """Names whose value goes anywhere; `_ = answer` goes nowhere."""
    thrown = {
        id(part)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and all(_is_nobody(target) for target in node.targets)
        for part in ast.walk(node.value)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in thrown:
            yield node


def _is_nobody(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and not target.id.strip("_")


def _keys(tree: ast.AST) -> Iterator[str]:
    """Constant names in `x["name"]`, `x.get("name")` and `"name" in x`, in the order of the source."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript | ast.Call | ast.Compare)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        key: object = None
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(value))):
                key = value
            case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value=str(value)), *_]):
                key = value
            case ast.Compare(left=ast.Constant(value=str(value)), ops=[ast.In() | ast.NotIn()]):
                key = value
            case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=str(value))]):
                key = value
        if isinstance(key, str) and re.fullmatch(r"[A-Za-z_][\w -]{0,39}", key):
            yield key


def _is_mark(text: str) -> bool:
    plain = text.strip()
    return 1 < len(plain) <= LONGEST and DIRECTIVES.search(text) is None


def _dot_stops(tree: ast.AST) -> bool:
    """Whether a pattern would go on over line breaks if it had DOTALL."""
    source = ast.unparse(tree)
    if re.search(r"\bDOTALL\b|\bre\.S\b|\(\?[aiLmux]*s", source):
        return False
    return any(re.search(r"(?<!\\)\.[*+{]", text) for text in texts(tree))
