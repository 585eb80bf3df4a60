"""What the documents tell people to type: blocks that can be run, blocks that cannot and why, commands within a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^\n]+) -->\n *)?```(?P<kind>bash|console|sh)\n"
    r"(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_INLINE = re.compile(r"`((?:arena|arena-gitops|arena-runner) [^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of commands."""

    page: Path
    body: str
    reason: str
    """why no test runs it; empty for all others"""

    @property
    def commands(self) -> list[str]:
        """What somebody types, line by line."""
        return [line for line in self.body.splitlines() if line.strip()]


def blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    return [
        Block(page, _typed(found["body"], found["kind"]), found["reason"] or "")
        for found in _BLOCK.finditer(page.read_text())
    ]


def _typed(body: str, kind: str) -> str:
    lines = (line.strip() for line in body.splitlines())
    if kind == "console":
        lines = (line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    return "\n".join(lines) + "\n"


def mentioned(page: Path) -> Iterator[str]:
    """Commands within text and tables, and every line of a block."""
    text = page.read_text()
    yield from _INLINE.findall(_BLOCK.sub("", text))
    for block in blocks(page):
        for line in block.commands:
            if found := re.search(r"^(?:\w+=\S+ )*((?:arena|arena-gitops|arena-runner) .*)$", line):
                yield found[1].partition(" #")[0].partition("  ")[0]
