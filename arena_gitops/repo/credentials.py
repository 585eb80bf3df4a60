"""Finds secrets written into a repository, by the prefixes their issuers gave them; and references out of place.

A finding names the place and the kind of secret; the value itself is never repeated, in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arena_gitops.errors import Diagnostic, Span
from arena_gitops.repo.document import Document, Path

REFERENCE = "${secret:"

_KINDS: dict[str, str] = {
    "an Arena token": r"arena_pat_[A-Za-z0-9_-]{8,}",
    "an API key (sk-…)": r"sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}",
    "a Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "an AWS access key": r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    "a GitHub token": r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "a GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"xox[abprs]-[A-Za-z0-9-]{10,}",
    "a Google API key": r"AIza[0-9A-Za-z_-]{35}",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
}
_ANY = re.compile(r"(?<![A-Za-z0-9_-])(?:" + "|".join(f"({pattern})" for pattern in _KINDS.values()) + ")")
_NAMES = tuple(_KINDS)
_BEGINNINGS = (
    *("arena_pat_", "sk-", "hf_", "AKIA", "ASIA", "github_pat_", "glpat-", "xox", "AIza", "-----BEGIN"),
    *(f"gh{letter}_" for letter in "pousr"),
)
"""Of every kind, what it cannot do without: looked for first, because it is fast."""


def misplaced(document: Document) -> Iterator[Diagnostic]:
    """Every `${secret:…}` where none is understood: it would be taken for the text that it is."""
    rewards = isinstance(document.value, dict) and document.value.get("kind") == "Reward"
    for path, text in _texts(document.value):
        if REFERENCE in text and not (rewards and path[:1] == ("secrets",)):
            hint = "Name it in a Reward (secrets: [NAME]); its code reads the environment variable NAME."
            message = "a secret is not filled in here; only a Reward is given secrets"
            yield Diagnostic(message, "secret-reference", document.span(path), hint)


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for key, inner in value.items():
                yield from _texts(inner, (*path, key))
        case list():
            for number, inner in enumerate(value):
                yield from _texts(inner, (*path, number))


def find(text: str, file: str) -> Iterator[Diagnostic]:
    """Every literal secret in a file's text, at its place."""
    if not any(beginning in text for beginning in _BEGINNINGS):
        return
    for match in _ANY.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
        name = _NAMES[(match.lastindex or 1) - 1]
        hint = "Remove and revoke it; name a secret of the server instead (Reward: secrets: [NAME])."
        yield Diagnostic(f"{name} is written here", "secret-literal", Span(file, line, column), hint)
