"""What changed inside files, as lines that every view shares: code as a unified diff.

All of it is text of strangers: one line stays one line, and nothing in it moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.model import Change
from arena_gitops.report.untrusted import plain

Styled = tuple[str, str]
"""A line and its style."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def code(change: Change) -> Iterator[Styled]:
    """Every file of the code, a heading and its lines."""
    for file in change.code:
        yield _heading(file), "bold"
        for line in file.lines:
            yield f"  {plain(line)}", _STYLES.get(line[:1], "dim")
        if file.omitted:
            yield f"  … {file.omitted:,} more lines of the diff", "dim"


def _heading(file: FileDiff) -> str:
    if file.note:
        return f"{plain(file.path)}  {file.note}"
    cosmetic = ", behaves the same" if file.cosmetic else ""
    return f"{plain(file.path)}  +{file.added} -{file.removed} lines{cosmetic}"
