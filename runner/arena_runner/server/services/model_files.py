"""Base models of the server's models folder, file by file, for workers that have none.

A name is looked up as workers look it up on their own machine. What can be read is what a listing names: weights,
configuration and tokenizer of one folder, never a pickle, and no link that leads out of the models folder.
"""

from __future__ import annotations

import hashlib
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.worker import ModelFile, ModelListing
from arena_runner.server.refusals import not_found

WANTED = ("*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "*.txt")
"""What the hub is asked for, too."""


def listing(models: Path, name: str) -> ModelListing:
    """The files of a model, with digests; 404 when the server has none of that name."""
    folder = _folder(models, name)
    files = tuple(_described(path) for path in sorted(folder.iterdir()) if _offered(models, folder, path))
    total = sha256_json({file.path: file.digest for file in files})
    return ModelListing(id=name, digest=total, files=files)


def file(models: Path, name: str, path: str) -> tuple[Path, ModelFile]:
    """One file of a model; 404 for whatever its listing does not name."""
    folder = _folder(models, name)
    found = folder / path
    if "/" in path or path in {"", ".", ".."} or not found.is_file() or not _offered(models, folder, found):
        raise not_found(f"file {path!r} of model {name}")
    return found, _described(found)


def _folder(models: Path, name: str) -> Path:
    parts = name.split("/")
    if all(part not in {"", ".", ".."} and "\\" not in part and "\0" not in part for part in parts):
        for folder in (models / name, models / parts[-1].lower()):
            if (folder / "config.json").is_file():
                return folder
    raise not_found(f"model {name!r} in the models folder")


def _offered(models: Path, folder: Path, path: Path) -> bool:
    if not path.is_file() or not any(fnmatch(path.name, pattern) for pattern in WANTED):
        return False
    whole = path.resolve()
    return whole.is_relative_to(folder.resolve()) or whole.is_relative_to(models.resolve())


def _described(path: Path) -> ModelFile:
    facts = path.stat()
    digest = _digest(str(path.resolve()), facts.st_size, facts.st_mtime_ns)
    return ModelFile(path=path.name, size=facts.st_size, digest=digest)


@lru_cache(maxsize=4096)
def _digest(path: str, _size: int, _changed: int) -> str:
    """Of a file as it was at that time: gigabytes are read once."""
    with Path(path).open("rb") as opened:
        return "sha256:" + hashlib.file_digest(opened, "sha256").hexdigest()
