"""An environment whose source is an archive: its files, beside the archive itself.

Nothing of it is run here. Links, devices and names that lead outside are refused; what is hidden or built from other
files is left out, as it is when an archive is sent.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

from arena_runner.sandbox.score import RewardError

T = TypeVar("T")
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
LARGEST, MOST = 128 * 2**20, 2_000
LEFT_OUT = re.compile(
    r"(^|/)(\.[^/]*|__pycache__|node_modules|venv|site-packages|[^/]*\.(pyc|pyo|egg-info))(/|$)"
)
"""Hidden files and what is built from others. The published client sends whole folders, `.git` and `.env` too."""


def unpacked(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The files of an environment in `folder`: those named, or what the only one holds if it is an archive."""
    known = tuple(names)
    if len(known) != 1 or not known[0].endswith(SUFFIXES):
        return known
    archive = known[0]
    try:
        found = dict(_zip(folder / archive) if archive.endswith(".zip") else _tar(folder / archive))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError) as problem:
        raise RewardError(f"it is no archive that can be opened ({problem})", archive) from problem
    if not found:
        raise RewardError("there is no file in it", archive)
    found = without_top(found)
    for name, content in found.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tuple(sorted(found))


def without_top(files: dict[str, T]) -> dict[str, T]:
    """Names from where imports start: a folder that holds everything is no part of them, unless it is a package."""
    tops = {PurePosixPath(name).parts[0] for name in files}
    top = next(iter(tops))
    if len(tops) > 1 or top in files or f"{top}/__init__.py" in files:
        return files
    return without_top({name.removeprefix(f"{top}/"): content for name, content in files.items()})


def _tar(path: Path) -> Iterator[tuple[str, bytes]]:
    room = _Room()
    with tarfile.open(path, "r:*") as tar:
        for member in tar:
            if member.isdir() or LEFT_OUT.search(member.name.removeprefix("./")):
                continue
            if not member.isreg():
                raise ValueError(f"{member.name} is a link or a device, not a file")
            room.take(member.name, member.size)
            content = tar.extractfile(member)
            yield _inside(member.name), content.read() if content else b""


def _zip(path: Path) -> Iterator[tuple[str, bytes]]:
    room = _Room()
    with zipfile.ZipFile(path) as opened:
        for member in opened.infolist():
            if member.is_dir() or LEFT_OUT.search(member.filename):
                continue
            if (member.external_attr >> 28) == 0xA:  # a link, as Unix writes them
                raise ValueError(f"{member.filename} is a link, not a file")
            room.take(member.filename, member.file_size)
            with opened.open(member) as content:
                data = content.read(member.file_size + 1)
            if len(data) > member.file_size:
                raise ValueError(f"{member.filename} is larger than it says")
            yield _inside(member.filename), data


class _Room:
    """How much is left of what an archive may hold."""

    def __init__(self) -> None:
        self._bytes, self._files = LARGEST, MOST

    def take(self, name: str, size: int) -> None:
        self._bytes, self._files = self._bytes - size, self._files - 1
        if self._bytes < 0 or self._files < 0:
            raise ValueError(f"{name} is beyond {LARGEST} bytes or {MOST} files")


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable() or not path.parts:
        raise ValueError(f"{name!r} is no path inside it")
    return path.as_posix()
