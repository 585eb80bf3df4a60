"""What came from the server and is used again: kept on this machine by the digest of all its files. Here: base models.

A file that was interrupted is continued where it broke off. A folder appears whole and verified, or not at all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.worker import ModelFile, WheelFile
from arena_runner.checkpoint import file_digest
from arena_runner.patience import patiently
from arena_runner.server_link import ServerLink

UNUSED_S = 30 * 24 * 3600.0

F = TypeVar("F", ModelFile, WheelFile)


def models_folder(link: ServerLink, model: ModelRef, cache: Path, patience_s: float) -> Path | None:
    """A folder in which the model is found by its name; None when the server has it not."""
    listing = patiently(lambda: link.model_listing(model), patience_s)
    if listing is None:
        return None
    root = cache / listing.digest.removeprefix("sha256:")[:32]
    keep(root, listing.id, listing.files, partial(link.get_model_file, model), patience_s)
    return root


def keep(
    root: Path, name: str, files: Iterable[F], get: Callable[[F, Path], None], patience_s: float
) -> None:
    """Make `root/name` hold the files, unless it does; what else lies beside `root` unused for long is removed."""
    with _alone(root):
        if not (root / name).is_dir():
            _download(root, name, files, get, patience_s)
        os.utime(root)
        _forget_unused(root.parent)


def _download(
    root: Path, name: str, files: Iterable[F], get: Callable[[F, Path], None], patience_s: float
) -> None:
    draft = root / ".incoming"
    for file in files:
        target = draft / file.path
        if not (target.is_file() and file_digest(target) == file.digest):
            patiently(partial(get, file, target), patience_s)
    final = root / name
    final.parent.mkdir(parents=True, exist_ok=True)
    draft.rename(final)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Two workers of one machine do not download the same at once."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


def _forget_unused(cache: Path) -> None:
    for root in cache.iterdir():
        if root.is_dir() and time.time() - root.stat().st_mtime > UNUSED_S:
            shutil.rmtree(root)
