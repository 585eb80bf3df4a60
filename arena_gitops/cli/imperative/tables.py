"""Lists for people: a table on a terminal, even columns with nothing cut off everywhere else; JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from arena_gitops.cli.session import Session

UNKNOWN = "-"

DIGEST = re.compile(r"\b(sha256:[0-9a-f]{12})[0-9a-f]{52}\b")
"""On a terminal as much of it as people compare; whole wherever it may be copied by a program."""

Row = TypeVar("Row", bound=BaseModel)
Columns = Mapping[str, Callable[[Row], Any]]
"""heading → what stands under it"""


def show(session: Session, rows: Sequence[Row], columns: Columns[Row], *, empty: str) -> None:
    """Print a list; with `--json` a JSON array of the rows with all their fields."""
    if session.json:
        session.emit(json.dumps([row.model_dump(mode="json") for row in rows], ensure_ascii=False))
    elif not rows:
        session.say(empty)
    else:
        table(tuple(columns), [[value(row) for value in columns.values()] for row in rows])


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print cells under headings; numbers stand to the right."""
    kept = [list(row) for row in rows]
    texts = [[cell(value) for value in row] for row in kept]
    right = [any(_is_number(row[i]) for row in kept) for i in range(len(headings))]
    if sys.stdout.isatty():
        _drawn(headings, texts, right)
    else:
        click.echo(plain(headings, texts, right))


def plain(headings: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Columns as wide as their longest cell, two spaces between them."""
    lines = [list(headings), *map(list, texts)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def cell(value: Any) -> str:
    """A value on one line: a tab or a line break in it would be read as a table's own."""
    match value:
        case None | "":
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case int():
            return f"{value}"
        case _:
            return " ".join(str(value).split())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _drawn(headings: Sequence[str], texts: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading, to_right in zip(headings, right, strict=True):
        drawn.add_column(heading, justify="right" if to_right else "left", overflow="fold")
    for line in texts:
        drawn.add_row(*(Text(DIGEST.sub(r"\1", text)) for text in line))
    Console(highlight=False).print(drawn)
