"""What changed in the code of a reward or environment, as a unified diff short enough for a plan.

A diff is for reading; what a change *means* is decided by comparing the parsed code (`plan.cosmetic`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from arena_gitops.plan.cosmetic import Pair, same_behaviour
from arena_gitops.spec.resource import Frozen

SHOWN_LINES = 120
"""Lines of one file's diff; whoever wants more has git."""
LONGEST_LINE = 240
COMPARED_LINES = 4_000
"""Per side; above that the comparison itself could take minutes."""
CONTEXT = 2


class FileDiff(Frozen):
    """One file of the code, before and after."""

    path: str
    """in the repository; of a file that is gone, where it was"""
    added: int = 0
    removed: int = 0
    """lines"""
    cosmetic: bool = False
    """only comments, docstrings or layout differ"""
    lines: tuple[str, ...] = ()
    """of the unified diff, without its heading"""
    omitted: int = 0
    """lines of the diff that are not shown"""
    note: str = ""
    """why there is no diff, where there is none"""


def file_diff(path: str, old: bytes | None, new: bytes | None) -> FileDiff:
    """Compare two contents of a file; None where it did not, or does not, exist."""
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return FileDiff(path=path, note="is no text")
    if max(len(before), len(after)) > COMPARED_LINES:
        return FileDiff(path=path, note=f"has more than {COMPARED_LINES:,} lines: not compared here")
    found = list(difflib.unified_diff(before, after, n=CONTEXT, lineterm=""))[2:]
    return FileDiff(
        path=path,
        added=sum(line.startswith("+") for line in found),
        removed=sum(line.startswith("-") for line in found),
        cosmetic=old is not None and new is not None and same_behaviour(old, new),
        lines=tuple(_clipped(line) for line in found[:SHOWN_LINES]),
        omitted=max(len(found) - SHOWN_LINES, 0),
    )


def unread(path: str) -> FileDiff:
    """A file of which one side could not be had."""
    return FileDiff(path=path, note="cannot be compared: the earlier content is not to be had here")


def equivalent(diffs: Mapping[Pair, FileDiff]) -> Iterator[Pair]:
    """Digests, old and new, of the files that only read differently."""
    return (pair for pair, found in diffs.items() if found.cosmetic)


def _lines(content: bytes | None) -> Sequence[str] | None:
    try:
        return (content or b"").decode().splitlines()
    except UnicodeDecodeError:
        return None


def _clipped(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
