"""The bytes of a file on its way to a platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from arena_gitops.errors import StaleError
from arena_gitops.state import Blob

CHUNK = 1 << 20


def bytes_of(blob: Blob) -> Callable[[], bytes | Iterator[bytes]]:
    """The blob's bytes, from their first one, as often as they are asked for."""
    if (data := blob.data) is not None:
        return lambda: data
    if not blob.path.is_file() or blob.path.stat().st_size != blob.size:
        raise StaleError(f"{blob.path} has changed since it was read; run the command again")

    def chunks() -> Iterator[bytes]:
        with blob.path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    return chunks
