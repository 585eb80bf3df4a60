"""What the documents tell people to type: blocks that can be run, blocks that cannot and why, commands within a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "runner/README.md")),
    *EXAMPLES,
]
"""Everything that tells people what to type."""

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^\n]+) -->\n *)?```(?P<kind>bash|console|sh)\n"
    r"(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_FENCED = re.compile(r"^ *```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"^ *(?:\$ )?(?:\w+=\S+ )*(?:\S*/bin/)?(?:arena|arena-gitops|arena-runner|make|pip|python|git|docker|curl|bash|sh|"
    r"npm|systemctl|mlflow|kubectl|ssh|scp|export|openssl) "
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


def hidden(page: Path) -> Iterator[str]:
    """Lines that look like commands and stand where no block of commands is: nothing runs them or says why not."""
    text = page.read_text()
    for found in _FENCED.finditer(text):
        if found["kind"] not in {"bash", "console", "sh"}:
            yield from (line for line in found["body"].splitlines() if _COMMAND.match(line))
    rest = _FENCED.sub("", text).splitlines()
    yield from (line for line in rest if line.startswith("    ") and _COMMAND.match(line))


def name_of(page: Path) -> str:
    """Of a page, among all of them."""
    return page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-")


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
