"""Rows of the hub that came through the server; kept as base models are."""

from __future__ import annotations

from pathlib import Path

from arena_runner.model_cache import keep
from arena_runner.patience import patiently
from arena_runner.server_link import ServerLink

NAME = "split"


def split_paths(link: ServerLink, cache: Path, patience_s: float) -> tuple[Path, ...]:
    """The files of the claimed job's split; waits while the server fetches them."""
    listing = patiently(link.split_listing, patience_s)
    root = cache / listing.digest.removeprefix("sha256:")[:32]
    keep(root, NAME, listing.files, link.get_split_file, patience_s)
    return tuple(root / NAME / file.path for file in listing.files)
