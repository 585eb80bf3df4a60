"""The files a repository may name: inside its root, known to git, as git would store them.

`Files` answers three questions: which file is meant by a path written in a document, what are its bytes, and
under which digest do they travel. Large files are streamed. A path that leaves the root, through `..` or
through a symbolic link, is refused.

A written path is relative to the folder of the document; where nothing is there, to the root.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

from arena_gitops.repo.conversion import Scan, scan
from arena_gitops.repo.git import Checkout
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.problems import near
from arena_gitops.state import Blob

IN_SUBMODULE = "Files of submodules are not read: they belong to another repository. Keep what is trained on in this one."

_LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\nsize ([0-9]+)\n"
)
_POINTER_MAX = 1024
_CONVERTED_AT_MOST = 64 << 20
"""Bytes that are held in memory where git stores a file otherwise than it lies on disk."""


class FileProblemError(Exception):
    """A path does not lead to a file that may be read."""

    def __init__(self, message: str, code: str, hint: str = "") -> None:
        self.message, self.code, self.hint = message, code, hint
        super().__init__(message)


@dataclass(slots=True)
class Files:
    """Files of one checkout. Paths are POSIX, relative to its root."""

    checkout: Checkout
    read_paths: set[str] = field(default_factory=set)
    """every file whose bytes were looked at"""
    _blobs: dict[str, Blob] = field(default_factory=dict)
    _converters: dict[str, str] | None = None
    _found: dict[tuple[str, str], str] = field(default_factory=dict)
    """what was written, and in which folder → the file that is meant"""
    _folders: dict[str, str] = field(default_factory=dict)
    """folder on disk → the same without links"""

    def find(self, written: str, beside: str) -> str:
        """The file a document means: `written` is relative to the folder of the file `beside`.

        Raises:
            FileProblemError: it is outside the root, missing, ignored by git, or not a file.
        """
        key = written, posixpath.dirname(beside)
        if key in self._found:
            return self._found[key]
        path = self._inside(written, beside)
        if path in self.checkout.files and self.on_disk(path).is_file():
            self._found[key] = path
            return path
        if self.on_disk(path).is_dir():
            raise FileProblemError(f"{written!r} is a folder, a file is needed", "not-a-file")
        if submodule := self._submodule_of(path):
            raise FileProblemError(f"{path} lies in the submodule {submodule}", "in-submodule", IN_SUBMODULE)
        if self.on_disk(path).exists():
            hint = "Take it out of .gitignore, or add it with: git add --force."
            raise FileProblemError(f"{path} exists, but git ignores it", "ignored-file", hint)
        raise FileProblemError(f"there is no file {path}", "missing-file", self._near(path))

    def find_folder(self, written: str, beside: str) -> str:
        """The folder a document means, `.` for the root itself; raises FileProblemError as `find` does."""
        path = self._inside(written, beside)
        if self.on_disk(path).is_dir():
            return path
        raise FileProblemError(f"there is no folder {path}", "missing-file", self._near(path))

    def below(self, folder: str) -> list[str]:
        """Every existing file in a folder and its subfolders, sorted."""
        prefix = "" if folder == "." else f"{folder}/"
        root = f"{self.checkout.root}/"
        found = (path for path in self.checkout.files if path.startswith(prefix))
        return sorted(path for path in found if os.path.isfile(root + path))

    def not_checked_out(self, folder: str) -> list[str]:
        """Tracked files of a folder that a sparse checkout leaves out: they exist, whatever the disk says."""
        prefix = "" if folder == "." else f"{folder}/"
        root = f"{self.checkout.root}/"
        return sorted(
            path
            for path in self.checkout.files.keys() - self.checkout.changed
            if path.startswith(prefix) and not os.path.lexists(root + path)
        )

    def submodules(self, folder: str) -> list[tuple[str, bool]]:
        """Submodules in, at or around a folder, and whether each is checked out."""
        inside = "" if folder == "." else f"{folder}/"
        found = (
            s for s in self.checkout.submodules if s.startswith(inside) or f"{folder}/".startswith(f"{s}/")
        )
        return [(path, self._is_filled(path)) for path in found]

    def _is_filled(self, folder: str) -> bool:
        place = os.path.join(self.checkout.root, folder)
        return os.path.isdir(place) and any(os.scandir(place))

    def _submodule_of(self, path: str) -> str:
        return next((s for s in self.checkout.submodules if path.startswith(f"{s}/")), "")

    def broken_links(self, folder: str) -> list[str]:
        """Links of a folder that lead to nothing, or in a circle."""
        prefix = "" if folder == "." else f"{folder}/"
        root = f"{self.checkout.root}/"
        found = (path for path in self.checkout.files if path.startswith(prefix))
        return sorted(
            path for path in found if os.path.islink(root + path) and not os.path.exists(root + path)
        )

    def on_disk(self, path: str) -> Path:
        """Where a file is on this machine."""
        return self.checkout.root / path

    def read(self, path: str) -> bytes:
        """A file's bytes as they are on disk; raises FileProblemError if it is outside the root or unreadable."""
        self._inside(path, "")
        self.read_paths.add(path)
        try:
            with open(os.path.join(self.checkout.root, path), "rb") as file:
                return file.read()
        except OSError as error:
            raise FileProblemError(f"{path} cannot be read: {error.strerror}", "unreadable-file") from error

    def source(self, path: str) -> bytes:
        """The stored bytes of a text file whose content is needed; a Git LFS pointer is refused."""
        blob = self.blob(path)
        if blob.absent:
            raise FileProblemError(f"{path} {blob.absent}", "lfs-pointer", "Fetch it with: git lfs pull.")
        return blob.data if blob.data is not None else self.on_disk(path).read_bytes()

    def blob(self, path: str) -> Blob:
        """A file by the digest of the bytes git would store, ready to upload; raises as `read` does."""
        if path not in self._blobs:
            self.read_paths.add(path)
            real = self._inside(path, "")
            try:
                self._blobs[path] = self._make_blob(real)
            except OSError as error:
                raise FileProblemError(
                    f"{path} cannot be read: {error.strerror}", "unreadable-file"
                ) from error
        return self._blobs[path]

    def changed(self, path: str) -> bool:
        """Whether a file is not as it was committed."""
        return path in self.checkout.changed

    def _make_blob(self, path: str) -> Blob:
        place = self.on_disk(path)
        if pointer := _lfs_pointer(place):
            digest, size = pointer
            return Blob(digest, place, size, absent="is a Git LFS pointer, its content is not here")
        found = scan(place)
        digest, size = found.digest, found.size
        converter = self._converter(path)
        if converter != "filter=lfs" and (converter or found.crlf):
            if size > _CONVERTED_AT_MOST:
                self._require_as_on_disk(path, found, converter or "line ends")
                return Blob(digest, place, size)
            data = self.checkout.stored_bytes(path)
            if (stored := sha256_bytes(data)) != digest:
                return Blob(stored, place, len(data), data=data)
        return Blob(digest, place, size)

    def _require_as_on_disk(self, path: str, found: Scan, why: str) -> None:
        if self.checkout.converts(path, found):
            raise FileProblemError(
                f"{path}: git stores other bytes than these {found.size:,} ({why}), too many to be converted here",
                "too-large-to-convert",
                "Keep it as git stores it (LF line ends, no filter), or in Git LFS.",
            )

    def _converter(self, path: str) -> str:
        if self._converters is None:
            self._converters = self.checkout.converters(self.checkout.files)
        return self._converters.get(path, "")

    def meant(self, written: str, beside: str) -> str:
        """The path a document means, whether or not it exists or may be read."""
        near_document = posixpath.normpath(posixpath.join(posixpath.dirname(beside), written))
        from_root = posixpath.normpath(written)
        root = self.checkout.root
        if not os.path.exists(os.path.join(root, near_document)) and os.path.exists(
            os.path.join(root, from_root)
        ):
            return from_root
        return near_document

    def _inside(self, written: str, beside: str) -> str:
        path = self.meant(written, beside)
        root = os.fspath(self.checkout.root)
        real = self._real(os.path.join(root, path))
        if path.startswith(("../", "/")) or path == ".." or not f"{real}/".startswith(f"{root}/"):
            hint = "Only files below the folder of arena.yaml are read."
            raise FileProblemError(f"{written!r} leads outside the repository", "outside-repository", hint)
        return os.path.relpath(real, root).replace(os.sep, "/")

    def _real(self, place: str) -> str:
        """A place without links; its folder is looked at once for all its files."""
        if os.path.islink(place) or place.endswith(("/", "/.", "/..")):
            return os.path.realpath(place)
        folder, name = os.path.split(place)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)

    def _near(self, path: str) -> str:
        name = posixpath.basename(path)
        same = sorted(other for other in self.checkout.files if posixpath.basename(other) == name)
        found = same[0] if same else near(path, self.checkout.files)
        return f"There is {found}; paths are relative to the document, or to the root." if found else ""


def _lfs_pointer(place: Path) -> tuple[str, int] | None:
    if place.stat().st_size > _POINTER_MAX:
        return None
    match = _LFS_POINTER.match(place.read_bytes().replace(b"\r\n", b"\n"))
    return (f"sha256:{match[1].decode()}", int(match[2])) if match else None
