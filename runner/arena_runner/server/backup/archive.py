"""The file of a backup: a tar of plain files, and at its end a manifest with the digest of each.

A file that was cut short has no manifest, one that was changed fails its digests; both are found before anything
is written. Names are relative and plain; there are no links, so nothing can be written elsewhere.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import ValidationError

from arena_gitops.errors import ArenaError
from arena_gitops.spec.resource import Frozen

FORMAT = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20


class BackupError(ArenaError):
    """A backup that cannot be made, is damaged, or does not fit where it should go."""


class Entry(Frozen):
    """One file as it was stored."""

    size: int
    sha256: str


class Manifest(Frozen):
    """What a backup holds."""

    format: int = FORMAT
    version: str
    """of the arena-runner that made it"""
    created: float
    database: str
    """`sqlite` or `postgresql`"""
    lineage: str
    files: dict[str, Entry]


class Hashing(io.RawIOBase):
    """A file that is hashed while it is read, and that ends where it ended when it was opened."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left, self._hash = file, size, hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self._hash.update(data)
        return data

    @property
    def digest(self) -> str:
        """Of everything read."""
        return self._hash.hexdigest()


class Writer:
    """Adds files; the manifest comes last."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar, self.files = tar, dict[str, Entry]()

    def add(self, name: str, path: Path) -> None:
        """A file as it is now; one that grows is kept as far as it had come."""
        with path.open("rb") as file:
            size = path.stat().st_size
            self._add(name, Hashing(file, size), size, int(path.stat().st_mtime))

    def add_bytes(self, name: str, data: bytes) -> None:
        """A file that is made here."""
        self._add(name, Hashing(io.BytesIO(data), len(data)), len(data), int(time.time()))

    def close(self, manifest: Manifest) -> None:
        """Write the manifest."""
        data = manifest.model_dump_json(indent=1).encode()
        self._tar.addfile(_info(MANIFEST, len(data), int(manifest.created)), io.BytesIO(data))

    def _add(self, name: str, source: Hashing, size: int, changed: int) -> None:
        try:
            self._tar.addfile(_info(name, size, changed), source)
        except OSError as problem:
            if problem.errno is not None:
                raise
            raise BackupError(f"{name} became shorter while it was read; try again") from problem
        self.files[name] = Entry(size=size, sha256=source.digest)


@contextmanager
def writing(target: Path) -> Iterator[Writer]:
    """A new backup; it appears under its name when it is whole, readable by its owner only."""
    if target.exists():
        raise BackupError(f"{target} exists already; give the backup a name of its own")
    temporary = target.with_name(f".{target.name}.incomplete")
    try:
        temporary.touch(mode=0o600)
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            yield Writer(tar)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def verified(source: Path) -> Manifest:
    """Read all of a backup and compare it with its manifest.

    Raises:
        BackupError: It is no backup, of a later format, cut short, or changed.
    """
    found: dict[str, Entry] = {}
    manifest: Manifest | None = None
    try:
        for member, file in _members(source):
            data = Hashing(file, member.size)
            if member.name == MANIFEST:
                manifest = Manifest.model_validate_json(data.read())
                continue
            while data.read(CHUNK):
                pass
            found[member.name] = Entry(size=member.size, sha256=data.digest)
    except (tarfile.TarError, EOFError, ValidationError) as problem:
        raise BackupError(f"{source} is damaged or no backup: {_first_line(problem)}") from problem
    if manifest is None:
        raise BackupError(f"{source} is cut short or no backup: it has no manifest")
    _compare(source, manifest, found)
    return manifest


def unpack(source: Path, folder: Path) -> None:
    """Write the files of a verified backup."""
    for member, file in _members(source):
        if member.name != MANIFEST:
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as output:
                shutil.copyfileobj(file, output, CHUNK)


def _compare(source: Path, manifest: Manifest, found: dict[str, Entry]) -> None:
    if manifest.format > FORMAT:
        raise BackupError(
            f"{source} was made by arena-runner {manifest.version}; restore it with that or a later one"
        )
    for name in sorted(manifest.files.keys() | found.keys()):
        if manifest.files.get(name) != found.get(name):
            what = "is missing" if name not in found else "is not what its digest says"
            raise BackupError(f"{source} is damaged: {name} {what}. Nothing was restored; use another backup")


def _members(source: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    with tarfile.open(source, "r:") as tar:
        for member in tar:
            pure = PurePosixPath(member.name)
            file = tar.extractfile(member) if member.isreg() else None
            if file is None or pure.is_absolute() or ".." in pure.parts:
                raise BackupError(f"{source} is no backup of ours: it holds {member.name!r}")
            yield member, file


def _info(name: str, size: int, changed: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, changed, 0o600
    return info


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0] or type(problem).__name__
