"""The content-addressed blob store: `blobs/sha256/ab/<hex>`; a blob appears whole or not at all.

Bytes stream into a temporary file of the same folder, are verified, synced and renamed. Blobs never change;
what nobody refers to any more is left for a later collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from arena_runner.server.refusals import RefusedError, not_found

DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class BlobStore:
    """Files by their sha256 below `root`; at most `limit` bytes each."""

    root: Path
    limit: int = 64 * 2**30

    def path(self, digest: str) -> Path:
        """Where the blob's bytes are, or would be; 422 for a name that is no digest."""
        if not DIGEST.match(digest):
            raise RefusedError(422, "bad-digest", f"{digest!r} is not sha256: and 64 lower-case hex digits")
        name = digest.removeprefix("sha256:")
        return self.root / "sha256" / name[:2] / name

    def has(self, digest: str) -> bool:
        """Whether the blob is here."""
        return self.path(digest).is_file()

    def existing(self, digest: str) -> Path:
        """The blob's file; 404 when it is not here."""
        path = self.path(digest)
        if not path.is_file():
            raise not_found(f"blob {digest}")
        return path

    def intact(self, digest: str) -> bool:
        """Whether a blob that is here is still the bytes that its name says; reads all of them."""
        with self.path(digest).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == digest

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Which of these are not here."""
        return tuple(sorted(d for d in set(digests) if not self.has(d)))

    def receive(self, digest: str) -> Incoming:
        """Begin to store a blob; feed it, then `commit` or `abandon`."""
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        return Incoming(digest, path, self.limit)

    def put(self, data: bytes) -> str:
        """Store bytes that are at hand; gives their digest."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        if not self.has(digest):
            incoming = self.receive(digest)
            try:
                incoming.write(data)
                incoming.commit()
            finally:
                incoming.abandon()  # of no effect once committed
        return digest


class Incoming:
    """A blob on its way in."""

    def __init__(self, digest: str, path: Path, limit: int) -> None:
        self._digest, self._path, self._limit = digest, path, limit
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".incoming-")
        self._file = os.fdopen(handle, "wb")
        self._temporary = Path(name)
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Take the next bytes; 413 when they are too many."""
        self._size += len(chunk)
        if self._size > self._limit:
            raise RefusedError(413, "too-large", f"blob {self._digest} is larger than {self._limit} bytes")
        self._hash.update(chunk)
        self._file.write(chunk)

    def commit(self) -> None:
        """Make the blob visible; 422 when its bytes do not hash to its name."""
        found = "sha256:" + self._hash.hexdigest()
        if found != self._digest:
            self.abandon()
            message = f"the {self._size} bytes received hash to {found}, not to {self._digest}"
            raise RefusedError(422, "digest-mismatch", message)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)
        _sync_folder(self._path.parent)

    def abandon(self) -> None:
        """Forget what has arrived."""
        with contextlib.suppress(OSError):  # what a full disk did not take it does not take now either
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
