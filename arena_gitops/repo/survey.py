"""One digest of everything a load of the repository would read, without reading it: git knows most blob ids.

Two surveys that are equal lead to equal desired states. Where that cannot be said cheaply and for certain (links,
files whose changes git was told to overlook, much that is not committed) there is no survey.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from arena_gitops.repo.git import index, survey_of_changes

MOST_CHANGED = 256
MOST_BYTES = 32 << 20
_LINK = "120000"
_CHUNK = 1 << 20


def survey(root: Path) -> str | None:
    """A digest; None where the repository is not plain enough to have one. Raises RepoError as a load would."""
    root = root.resolve()
    digest = hashlib.sha256()
    for tag, mode, rest in index(root):
        if mode == _LINK or tag != "H":
            return None
        digest.update(rest)
    changes = survey_of_changes(root)
    if len(changes.paths) > MOST_CHANGED:
        return None
    digest.update(repr((changes.commit, changes.remote)).encode())
    left = MOST_BYTES
    for path in changes.paths:
        found = _content(root / path, left)
        if found is None:
            return None
        size, content = found
        left -= size
        digest.update(f"{path}\0{size}\0{content}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _content(place: Path, most: int) -> tuple[int, str] | None:
    """Size and digest of a changed file; what is gone has neither. None for a link, a folder, or too much."""
    try:
        if place.is_symlink() or not place.is_file():
            return (0, "gone") if not os.path.lexists(place) else None
        size = place.stat().st_size
        if size > most:
            return None
        digest = hashlib.sha256()
        for chunk in _chunks(place):
            digest.update(chunk)
    except OSError:  # it cannot be read now: the load will say why
        return None
    return size, digest.hexdigest()


def _chunks(place: Path) -> Iterator[bytes]:
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
