"""Modules and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("arena_gitops", "runner/arena_runner") for path in (ROOT / folder).rglob("*.py")
)
MODULE_LINES = 400
FUNCTION_LINES = 60
LISTS = "migrations/versions"
"""A migration is one long list of columns in the order in which they are made; its length is no complexity."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without the docstring: a long explanation is no long function."""
    body = function.body
    if len(body) > 1 and ast.get_docstring(function) is not None:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_there_is_something_to_measure():
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_is_short_enough(path):
    lines = path.read_text().count("\n")
    assert lines <= MODULE_LINES


@pytest.mark.parametrize("path", [p for p in SOURCES if LISTS not in p.as_posix()], ids=name_of)
def test_functions_are_short_enough(path):
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = {
        f"{f.name} (line {f.lineno})": body_lines(f) for f in functions if body_lines(f) > FUNCTION_LINES
    }
    assert too_long == {}
