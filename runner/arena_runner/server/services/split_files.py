"""Rows on the hub, for the worker whose job trains on them: the server fetches, the worker reads from the server.

As with packages, who asks first starts the download and is told to come again; nothing waits in a request. A split is
kept while it is used, so that the segments of a run read the same rows, whatever the hub says meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from arena_gitops.spec.digest import sha256_json
from arena_gitops.spec.job import HubDataset
from arena_gitops.spec.worker import ModelFile, SplitListing
from arena_runner.data import DataError
from arena_runner.faults import OutsideError
from arena_runner.server import hub
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.settings import Settings

ASKED_EVERY_S = 0.1
UNUSED_S = 30 * 24 * 3600.0
LISTING = "listing.json"
DRAFT = ".draft-"


@dataclass(slots=True)
class Downloads:
    """Those of one server."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at_work: dict[str, Future[None]] = field(default_factory=dict)


def listing(root: Path, downloads: Downloads, settings: Settings, wanted: HubDataset) -> SplitListing:
    """What was fetched.

    Raises:
        RefusedError: 503 while it is being fetched, 422 when there is none, 424 when the hub does not answer.
    """
    folder = root / _key(wanted)
    with downloads.lock:
        if not (folder / LISTING).is_file():
            _advance(folder, downloads, partial(_fetch, settings, wanted, folder))
    os.utime(folder)
    return SplitListing.model_validate_json((folder / LISTING).read_bytes())


def awaited(root: Path, downloads: Downloads, settings: Settings, wanted: HubDataset) -> list[Path]:
    """The files themselves, for whoever can wait: `hub.wait_s` at most.

    Raises:
        DataError: The hub has no such thing.
        OutsideError: The hub does not answer, or not in time.
    """
    deadline = time.monotonic() + settings.hub.wait_s
    while True:
        try:
            found = listing(root, downloads, settings, wanted)
        except RefusedError as no:
            if isinstance(no.__cause__, DataError | OutsideError):
                raise no.__cause__ from None
            if time.monotonic() > deadline:
                took = f"rows of {wanted.id} did not come from the hub within {settings.hub.wait_s:g} s"
                raise OutsideError(took) from no
            time.sleep(ASKED_EVERY_S)
        else:
            return [root / _key(wanted) / "files" / described.path for described in found.files]


def file(root: Path, wanted: HubDataset, path: str) -> tuple[Path, ModelFile]:
    """One file; 404 for whatever the listing does not name."""
    folder = root / _key(wanted)
    if (folder / LISTING).is_file():
        known = SplitListing.model_validate_json((folder / LISTING).read_bytes())
        for described in known.files:
            if described.path == path:
                return folder / "files" / path, described
    raise not_found(f"file {path!r} of {wanted.id}")


def _key(wanted: HubDataset) -> str:
    return sha256_json(wanted.model_dump(mode="json")).removeprefix("sha256:")[:32]


def _advance(folder: Path, downloads: Downloads, fetch: Callable[[], None]) -> None:
    """Start the download, wait for it, or tell how it failed; who asks after that starts another."""
    running = downloads.at_work.get(folder.name)
    if running is None:
        if not downloads.at_work:
            _forget(folder.parent)
        running = downloads.at_work[folder.name] = Future()
        threading.Thread(
            target=_settle, args=(running, fetch), name=f"split {folder.name}", daemon=True
        ).start()
    if not running.done():
        raise RefusedError(503, "fetching", "the rows are being fetched from the hub; ask again")
    del downloads.at_work[folder.name]
    match running.exception():
        case None:
            return
        case DataError() as problem:
            raise RefusedError(422, "bad-dataset", str(problem)) from problem
        case OutsideError() as problem:
            raise RefusedError(424, "no-hub", str(problem)) from problem
        case problem:
            raise problem


def _settle(running: Future[None], fetch: Callable[[], None]) -> None:
    try:
        fetch()
    except Exception as problem:  # noqa: BLE001 - told to who asks next
        running.set_exception(problem)
    else:
        running.set_result(None)


def _fetch(settings: Settings, wanted: HubDataset, folder: Path) -> None:
    """Download and name the files, and put them in their place in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=DRAFT))
    try:
        split = hub.fetch(settings, wanted, draft / "files")
        files = tuple(
            ModelFile(
                path=path.relative_to(draft / "files").as_posix(),
                size=path.stat().st_size,
                digest=_digest(path),
            )
            for path in split.files
        )
        total = sha256_json({file.path: file.digest for file in files})
        found = SplitListing(revision=split.revision, digest=total, files=files)
        (draft / LISTING).write_text(found.model_dump_json())
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return "sha256:" + hashlib.file_digest(opened, "sha256").hexdigest()


def _forget(root: Path) -> None:
    """Remove what nobody has asked for in a month, and what a server that was killed had begun."""
    for folder in root.glob("*"):
        if folder.name.startswith(DRAFT) or time.time() - folder.stat().st_mtime > UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)
