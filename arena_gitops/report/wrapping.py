"""Long lines on a terminal: broken between words, and going on under their own beginning.

A pipe gets whole lines, whatever their length; a terminal would break them in the middle of a word, at its left edge.
"""

from __future__ import annotations

from collections.abc import Iterator

HANG = 4
"""Spaces by which the rest of a line stands further in than its beginning."""
NARROWEST = 40
"""On less than that nothing is gained."""


def rows(text: str, width: int) -> Iterator[tuple[int, int, int]]:
    """Where each row of a line begins and ends in it, and how many spaces stand before it."""
    start, before, word = 0, 0, len(text) - len(text.lstrip(" "))
    indent = min(word + HANG, width // 2)
    while len(text) - start > width - before:
        limit = start + width - before
        end = text.rfind(" ", word, limit + 1)
        if end < 0:  # one word, longer than a row: it is left whole
            end = text.find(" ", limit)
        if end < 0:
            break
        yield start, end, before
        start = word = end + len(text[end:]) - len(text[end:].lstrip(" "))
        before = indent
    yield start, len(text), before
