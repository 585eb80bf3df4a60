"""The even layout of resource documents: indentation and spacing, never a value, a comment or an order.

Manifests are left as they are: they are read verbatim and may be somebody else's. A text is changed only where
reading it again gives the same data and the same comments.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from arena_gitops.errors import RepoError, Severity
from arena_gitops.repo import documents, yaml
from arena_gitops.repo.catalog import Catalog
from arena_gitops.repo.files import Files
from arena_gitops.repo.git import ROOT_FILE, checkout

_NO_WRAPPING = 1 << 20
_COMMENT = re.compile(r"(?:^|\s)(#.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Layout:
    """A document as it is and as it would be laid out."""

    path: str
    """of the repository"""
    place: Path
    before: bytes
    after: bytes

    @property
    def differs(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after


def layouts(root: Path) -> tuple[Layout, ...]:
    """Every document of the repository that declares a resource, and `arena.yaml`, by path.

    Raises:
        RepoError: with every problem that keeps a document from being read.
    """
    catalog = Catalog(Files(checkout(root)))
    documents.read_all(catalog)
    errors = [problem for problem in catalog.problems if problem.severity is Severity.ERROR]
    if errors:
        raise RepoError(errors)
    return tuple(_layouts(catalog))


def evenly(text: str) -> str:
    """A YAML text laid out evenly: two spaces a level, lists indented below their key, one final newline."""
    if "\r\n" in text:
        return evenly(text.replace("\r\n", "\n")).replace("\n", "\r\n")
    door = YAML(typ="rt")
    door.preserve_quotes = True
    door.width = _NO_WRAPPING
    door.explicit_start = text.startswith("---")
    door.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    door.dump_all(list(door.load_all(text)), out)
    after = re.sub(r"[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)
    return after if _same(text, after) else text


def _layouts(catalog: Catalog) -> Iterator[Layout]:
    files = {entry.file for entry in catalog.entries.values() if not entry.file.endswith(".py")}
    for path in sorted({ROOT_FILE, *files}):
        before = catalog.files.read(path)
        after = evenly(before.decode("utf-8-sig")).encode()
        yield Layout(path, catalog.files.on_disk(path), before, after)


def _same(before: str, after: str) -> bool:
    """Whether two texts hold the same documents and the same comments."""
    old, new = yaml.read(before.encode(), ""), yaml.read(after.encode(), "")
    same_data = [read.value for read in old.documents] == [read.value for read in new.documents]
    return same_data and len(old.problems) == len(new.problems) and _comments(before) == _comments(after)


def _comments(text: str) -> list[str]:
    return _COMMENT.findall(text)
