"""Files on their way: the platform has no store of its own, so they wait here for the call that sends them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from arena_gitops.errors import PlatformRejectedError, Rejection, StaleError
from arena_gitops.platforms.arena_cloud.names import dataset_name
from arena_gitops.platforms.multipart import FilePart
from arena_gitops.spec.resource import Address
from arena_gitops.state import Blob, DesiredResource

CHUNK = 1 << 20
LOOKED_AT = 8 << 20
"""Longer files are not read into memory to look at their columns; the platform checks them at submission."""


class Staging:
    """Blobs by digest."""

    def __init__(self) -> None:
        self._blobs: dict[str, Blob] = {}
        self._there: frozenset[str] = frozenset()

    def known(self, datasets: frozenset[str], book: Mapping[Address, DesiredResource]) -> None:
        """Rows that the platform has under the name of their content need not be at hand."""
        declared = ((a, r) for a, r in book.items() if a.kind == "dataset" and r.spec.get("digest"))
        self._there = frozenset(
            str(r.spec["digest"]) for a, r in declared if dataset_name(a.name, r.spec) in datasets
        )

    def missing(self, digests: Iterable[str]) -> frozenset[str]:
        """Which of these nobody has brought."""
        return frozenset(d for d in digests if d not in self._blobs and d not in self._there)

    def keep(self, blob: Blob) -> None:
        """Remember where its bytes are; refuse bytes that do not hash to the name."""
        if _digest(blob) != blob.digest:
            message = f"the bytes of {blob.path.name} do not hash to {blob.digest}"
            raise PlatformRejectedError(Rejection(422, "digest_mismatch", message))
        self._blobs[blob.digest] = blob

    def contents(self, digests: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those that are here, but for very long ones."""
        held = (self._blobs[digest] for digest in digests if digest in self._blobs)
        return {blob.digest: _bytes(blob) for blob in held if blob.size <= LOOKED_AT}

    def part(self, digest: str, field: str, name: str, content_type: str) -> FilePart:
        """A file as a form sends it."""
        blob = self._blobs.get(digest)
        if blob is None:
            raise PlatformRejectedError(Rejection(422, "missing_blob", f"{name} ({digest}) was not uploaded"))
        source: Path | bytes = blob.path if blob.data is None else blob.data
        return FilePart(field, name, source, content_type)


def _bytes(blob: Blob) -> bytes:
    return blob.path.read_bytes() if blob.data is None else blob.data


def _digest(blob: Blob) -> str:
    if blob.data is not None:
        return "sha256:" + hashlib.sha256(blob.data).hexdigest()
    if not blob.path.is_file() or blob.path.stat().st_size != blob.size:
        raise StaleError(f"{blob.path} has changed since it was read; run the command again")
    with blob.path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
