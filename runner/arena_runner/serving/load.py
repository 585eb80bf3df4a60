"""Read an adapter from disk and make sure that it is the one that was asked for."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from arena_runner import peft_format
from arena_runner.serving.protocol import Adapter, FileAt, LoadAdapter
from arena_runner.serving.shelf import Loaded, UnfitAdapterError

FILES = (peft_format.WEIGHTS, peft_format.CONFIG)


def read_adapter(request: LoadAdapter) -> Loaded:
    """Read and verify; raises UnfitAdapterError or AdapterFormatError."""
    if request.path is not None:
        return _read(request, Path(request.path))
    lacking = [name for name in FILES if name not in request.files]
    if lacking:
        raise UnfitAdapterError(f"adapter {request.name}: files lacks {', '.join(lacking)}")
    with tempfile.TemporaryDirectory(prefix="arena-adapter-") as folder:
        for name in FILES:
            (Path(folder) / name).symlink_to(_verified(request.name, request.files[name]))
        return _read(request, Path(folder))


def _read(request: LoadAdapter, folder: Path) -> Loaded:
    tensors, config = peft_format.read(folder)
    found = peft_format.digest(tensors, config)
    if request.digest is not None and found != request.digest:
        raise UnfitAdapterError(
            f"adapter {request.name}: the tensors hash to {found}, {request.digest} was asked for"
        )
    about = Adapter(
        name=request.name, digest=found, rank=config.rank, alpha=config.alpha, template=request.template
    )
    return Loaded(tensors, config, about)


def _verified(adapter: str, file: FileAt) -> Path:
    path = Path(file.path).resolve()
    try:
        with path.open("rb") as stream:
            found = "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnfitAdapterError(f"adapter {adapter}: {error}") from error
    if file.digest is not None and found != file.digest:
        raise UnfitAdapterError(f"adapter {adapter}: {path} hashes to {found}, not to {file.digest}")
    return path
