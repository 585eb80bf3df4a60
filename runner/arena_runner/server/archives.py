"""Unpack an archive that somebody sent: into blobs, never onto a path, and no further than it may go.

Nothing of it touches the file system under its own name, so there is nowhere to escape to; what tries (absolute
names, `..`, links, devices) is refused all the same, because whoever runs the files would follow it.
"""

from __future__ import annotations

import gzip
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, cast

from arena_runner.sandbox.unpack import LARGEST, LEFT_OUT, MOST
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.faults import fault_of
from arena_runner.server.refusals import RefusedError

GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The files by name and digest, and the names that were left out."""

    files: dict[str, str]
    left_out: tuple[str, ...]


def unpack(blobs: BlobStore, archive: IO[bytes]) -> Unpacked:
    """Keep the files of a tar archive, compressed by gzip or not; 422 when it is none, or not a safe one."""
    head = archive.read(len(GZIP))
    archive.seek(0)
    try:
        plain = cast("IO[bytes]", gzip.GzipFile(fileobj=archive, mode="rb")) if head == GZIP else archive
        with tarfile.open(fileobj=cast("IO[bytes]", _Bounded(plain)), mode="r|") as tar:
            return _members(blobs, tar)
    except (tarfile.TarError, EOFError, OSError, ValueError) as problem:
        if fault_of(problem):  # of our disk, not of the archive
            raise
        raise _unsafe(f"it is not a tar.gz archive ({problem})") from problem


class _Bounded:
    """Reads no more than the limit, whatever an archive claims of itself."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner, self._left = inner, LARGEST

    def read(self, size: int = -1) -> bytes:
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        data = self._inner.read(wanted)
        self._left -= len(data)
        if self._left < 0:
            raise _unsafe(f"unpacked it has more than {LARGEST} bytes")
        return data


def _members(blobs: BlobStore, tar: tarfile.TarFile) -> Unpacked:
    files: dict[str, str] = {}
    left_out: list[str] = []
    for member in tar:
        name = _name(member)
        if member.isdir():
            continue
        if LEFT_OUT.search(name):
            left_out.append(name)
            continue
        if not member.isreg():
            raise _unsafe(f"{member.name} is a link or a device, not a file")
        if name in files:
            raise _unsafe(f"{name} is in it twice")
        if len(files) >= MOST:
            raise _unsafe(f"it has more than {MOST} files")
        content = tar.extractfile(member)
        files[name] = blobs.put(content.read() if content else b"")
    if not files:
        raise _unsafe("there is no file in it")
    return Unpacked(dict(sorted(files.items())), tuple(left_out))


def _name(member: tarfile.TarInfo) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or not member.name.isprintable():
        raise _unsafe(f"{member.name!r} is no path inside it")
    return path.as_posix()


def _unsafe(why: str) -> RefusedError:
    return RefusedError(422, "bad-archive", f"the archive is refused: {why}")
