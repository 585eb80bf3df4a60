"""Text of strangers, made harmless: names, descriptions, values and messages that a pull request may hold.

Whoever opens a pull request writes what a plan quotes. Nothing of it may notify people, refer to issues, open
a tag, a comment, a table cell or a fence, or reorder what a reviewer reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BREAK = "\u200b"
"""A space without width: keeps GitHub from reading `@name`, `#1` and `https://` as more than text."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""Control characters, writing directions (what is read is not what is there), halves of characters."""
_MARKUP = re.compile(r"([\\|`*_\[\]~])")
_REFERENCE = re.compile(r"([@#$]|:(?=//)|\bwww(?=\.)|\bGH-(?=\d))", re.IGNORECASE)


def plain(raw: str) -> str:
    """One line without anything invisible."""
    return _INVISIBLE.sub("\ufffd", raw.replace("\r\n", " ").translate(_LINE_ENDS))


def escaped(raw: str) -> str:
    """Text that stays text in Markdown: no table cells, code, HTML, mentions, references or links."""
    text = _MARKUP.sub(r"\\\1", plain(raw))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCE.sub(r"\1" + BREAK, text)


def fenced(lines: Iterable[str], language: str = "text") -> str:
    """A code block that nothing inside can close."""
    body = "\n".join(plain(line) for line in lines)
    fence = "`" * max(3, longest_run(body) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def longest_run(body: str) -> int:
    """Length of the longest run of backticks."""
    return max((len(run) for run in re.findall("`+", body)), default=0)


def clipped(raw: str, longest: int) -> str:
    """The beginning of a long text."""
    return raw if len(raw) <= longest else raw[: longest - 1] + "…"


_LINE_ENDS = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
