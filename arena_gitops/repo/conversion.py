"""Whether git stores a file otherwise than it lies on disk, found in one pass that holds a megabyte of it.

Git itself answers that by reading the whole file into memory, twice where it converts. For a file of gigabytes the
answer here may say yes where git would find nothing to convert (rarely), never the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20
ATTRIBUTES = ("text", "crlf", "eol", "ident", "filter", "working-tree-encoding")
"""Everything in `.gitattributes` that makes the stored bytes differ."""
_KEYWORD = b"$Id:"
_OFF = frozenset({"unspecified", "unset"})


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over a file finds."""

    digest: str
    size: int
    crlf: bool
    binary: bool
    """by git's own signs of it: a NUL, or a CR without a LF"""
    keyword: bool
    """whether there is an `$Id: …$` that git would empty"""


def scan(place: Path) -> Scan:
    """Read a file once."""
    digest, size, returns, pairs = hashlib.sha256(), 0, 0, 0
    nul = keyword = False
    last = b""
    with place.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            returns += chunk.count(b"\r")
            pairs += chunk.count(b"\r\n") + (last.endswith(b"\r") and chunk.startswith(b"\n"))
            nul = nul or b"\0" in chunk
            keyword = keyword or _KEYWORD in chunk or _KEYWORD in last + chunk[: len(_KEYWORD)]
            last = chunk[-len(_KEYWORD) :]
    return Scan(f"sha256:{digest.hexdigest()}", size, pairs > 0, nul or returns > pairs, keyword)


def converts(found: Scan, attributes: Mapping[str, str], autocrlf: str) -> bool:
    """Whether git would store other bytes, filters aside."""
    if attributes.get("working-tree-encoding", "unset") not in _OFF:
        return True
    if found.keyword and attributes.get("ident", "unset") == "set":
        return True
    text = _text(attributes, autocrlf)
    return found.crlf and (text == "set" or (text == "auto" and not found.binary))


def _text(attributes: Mapping[str, str], autocrlf: str) -> str:
    """`set`, `unset` or `auto`, by the rules of gitattributes(5)."""
    text = attributes.get("text", "unspecified")
    if text == "unspecified":
        text = {"set": "set", "input": "set", "unset": "unset"}.get(attributes.get("crlf", ""), text)
    if text == "unspecified" and attributes.get("eol", "unspecified") in {"lf", "crlf"}:
        return "set"
    if text == "unspecified":
        return "auto" if autocrlf in {"true", "input"} else "unset"
    return text if text in {"set", "unset", "auto"} else "set"
