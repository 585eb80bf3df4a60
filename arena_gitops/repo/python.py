"""What a Python file of the repository defines and imports, read with `ast` and never run.

The *closure* of a file is the file and every file of the repository that it imports, however indirectly:
the code whose change is a change of the reward or environment. Files opened by name at run time are not seen.
"""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.repo import credentials
from arena_gitops.repo.files import FileProblemError, Files


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file."""

    path: str
    tree: ast.Module

    def names(self) -> dict[str, int]:
        """Names bound at the top of the module → line; `if` and `try` blocks are looked into."""
        return dict(_bound(self.tree.body))

    def functions(self) -> dict[str, int]:
        """Functions defined at the top of the module → line."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return {node.name: node.lineno for node in self.tree.body if isinstance(node, kinds)}


def parse(files: Files, path: str) -> Module | Diagnostic:
    """Parse a file; a syntax error, an LFS pointer or text that is not UTF-8 is a diagnostic at its place."""
    try:
        source = files.source(path)
    except FileProblemError as problem:
        return Diagnostic(problem.message, problem.code, Span(path), problem.hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a dubious escape is its author's business
            return Module(path, ast.parse(source, filename=path))
    except SyntaxError as error:
        span = Span(path, error.lineno or 1, max(error.offset or 1, 1))
        return Diagnostic(f"Python cannot read this: {error.msg}", "python-syntax", span)
    except (ValueError, RecursionError, MemoryError) as error:
        return Diagnostic(f"Python cannot read this: {error}", "python-syntax", Span(path))


def closure(
    files: Files, entry: str, folder: str | None = None
) -> tuple[dict[str, Module], list[Diagnostic]]:
    """Parse `entry` and every repository file it imports.

    Args:
        files: the repository.
        entry: the file to start from.
        folder: where absolute imports are looked up first; the entry's own folder if absent. The root is second.
    """
    places = dict.fromkeys((posixpath.dirname(entry) if folder is None else folder, ""))
    modules: dict[str, Module] = {}
    problems: list[Diagnostic] = []
    waiting, seen = [entry], {entry}
    while waiting:
        path = waiting.pop()
        parsed = parse(files, path)
        if isinstance(parsed, Diagnostic):
            problems.append(parsed)
            continue
        modules[path] = parsed
        text = files.source(path).decode(errors="replace")
        problems.extend(credentials.find(text, path))
        found = {name for name in _imported(parsed, tuple(places)) if name in files.checkout.files} - seen
        seen |= found
        waiting.extend(sorted(found))
    return modules, problems


def _imported(module: Module, places: tuple[str, ...]) -> Iterator[str]:
    """Paths that the imports of a module may mean, whether or not they exist."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _candidates(alias.name, places)
        elif isinstance(node, ast.ImportFrom):
            where = places if node.level == 0 else (_parent(module.path, node.level),)
            if node.module:
                yield from _candidates(node.module, where)
            for alias in node.names:
                yield from _candidates(f"{node.module}.{alias.name}" if node.module else alias.name, where)


def _candidates(name: str, places: tuple[str, ...]) -> Iterator[str]:
    parts = name.split(".")
    for place in places:
        for length in range(1, len(parts) + 1):
            path = posixpath.join(place, *parts[:length])
            yield f"{path}.py"
            yield f"{path}/__init__.py"


def _parent(path: str, level: int) -> str:
    folder = posixpath.dirname(path)
    for _ in range(level - 1):
        folder = posixpath.dirname(folder)
    return folder


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Import() | ast.ImportFrom():
                yield from (
                    (alias.asname or alias.name.partition(".")[0], node.lineno) for alias in node.names
                )
            case ast.Assign():
                yield from ((t.id, node.lineno) for t in node.targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno
            case ast.If():
                yield from _bound([*node.body, *node.orelse])
            case ast.Try():
                handled = [statement for handler in node.handlers for statement in handler.body]
                yield from _bound([*node.body, *handled, *node.orelse, *node.finalbody])
            case _:
                pass
