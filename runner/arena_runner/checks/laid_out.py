"""Files by digest, as a folder that user code can be run in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from arena_runner.sandbox import inside

BlobPath = Callable[[str], Path]
"""digest → where those bytes lie"""


@contextmanager
def laid_out_files(files: Mapping[str, str], blob_path: BlobPath) -> Iterator[Path]:
    """A folder with files, given by path and digest."""
    folder = Path(tempfile.mkdtemp(prefix="arena-files-"))
    try:
        for name, digest in files.items():
            target = folder / inside(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob_path(digest), target)
        yield folder
    finally:
        shutil.rmtree(folder)
