"""Contents of files of the repository."""

from __future__ import annotations

from arena_gitops.state import Blob


def content_of(blob: Blob, limit: int) -> bytes | None:
    """The bytes of a file of the repository; None where they are too many, or gone by now."""
    if blob.absent or blob.size > limit:
        return None
    if blob.data is not None:
        return blob.data
    try:
        return blob.path.read_bytes()
    except OSError:
        return None
