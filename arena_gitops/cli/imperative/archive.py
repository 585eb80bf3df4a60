"""A folder of code as one archive: the same files give the same bytes, and nothing hidden leaves the machine.

Nor does what a `.gitignore` or `.arenaignore` in the folder, or in one below it, names in git's own patterns.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from arena_gitops.errors import UsageError

ARCHIVES = (".tar.gz", ".tgz")
CACHES = frozenset({"__pycache__", "node_modules", "venv"})
IGNORES = (".gitignore", ".arenaignore")
LIMIT = 1 << 28
"""Bytes of sources; an environment that needs more has data in its folder that belongs elsewhere."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive in memory."""

    name: str
    content: bytes


def pack(source: Path) -> Packed:
    """An archive as it is, or of a folder's or a file's content, by relative names."""
    if source.is_file() and source.name.endswith(ARCHIVES):
        return Packed(source.name, source.read_bytes())
    root = source if source.is_dir() else source.parent
    files = sorted(_files(root)) if source.is_dir() else [source]
    if not files:
        raise UsageError(f"--source {source} holds no files")
    if (size := sum(path.stat().st_size for path in files)) > LIMIT:
        raise UsageError(f"--source {source} has {size:,} bytes of files; {LIMIT:,} are the most")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return Packed(f"{source.resolve().stem}.tar.gz", gzip.compress(raw.getvalue(), mtime=0))


def _files(folder: Path, rules: tuple[_Rules, ...] = ()) -> Iterator[Path]:
    """Plain files; links are not followed out of the folder."""
    rules = (_Rules.of(folder), *rules)
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in CACHES or path.is_symlink() or _ignored(path, rules):
            continue
        if path.is_dir():
            yield from _files(path, rules)
        elif path.is_file():
            yield path


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the ignore files of one folder say about the names in and below it."""

    folder: Path
    spec: GitIgnoreSpec

    @classmethod
    def of(cls, folder: Path) -> _Rules:
        texts = [(folder / name).read_bytes() for name in IGNORES if (folder / name).is_file()]
        lines = (line for text in texts for line in text.decode("utf-8", "replace").splitlines())
        return cls(folder, GitIgnoreSpec.from_lines(lines))


def _ignored(path: Path, rules: tuple[_Rules, ...]) -> bool:
    """The nearest folder that says something about it counts."""
    for rule in rules:
        name = path.relative_to(rule.folder).as_posix()
        if (said := rule.spec.check_file(f"{name}/" if path.is_dir() else name).include) is not None:
            return said
    return False
