"""Rows of the hub, brought into this server's blobs in the background, once per dataset that a command made.

A run pins them when it is first claimed: from then on its worker reads the blob, whatever the hub holds later.
A dataset of a repository is left as it is declared; its workers read the hub.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import DatasetInput, HubDataset
from arena_gitops.spec.resource import Address
from arena_runner.checks.dataset import DatasetCheck
from arena_runner.data import DataError, records
from arena_runner.faults import OutsideError
from arena_runner.server import hub
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import resources, uploads
from arena_runner.server.services.hub_rows import FAILED, NAMESPACE, PENDING, READY, find, job_input
from arena_runner.server.services.uploads import Stored, Upload
from arena_runner.server.store.imports import ImportRow
from arena_runner.server.world import World

LEFTOVER = ".hub-"
"""Begins the names of folders that hold files while they come."""

log = logging.getLogger(__name__)


def sweep(world: World) -> None:
    """Delete what an import left behind that was killed; there is one server to a home."""
    for folder in world.home.root.glob(f"{LEFTOVER}*"):
        shutil.rmtree(folder)


def ask(world: World, name: str, wanted: HubDataset) -> None:
    """Have the rows brought; what is here already stays, what has failed is tried again."""
    asked, now = wanted.model_dump(mode="json"), world.clock()
    with world.store.write() as session:
        row = find(session, name)
        if row is not None and row.hub == asked and row.state != FAILED:
            return
        if row is None:
            row = ImportRow(namespace=NAMESPACE, dataset=name, created=now)
            session.add(row)
        row.hub, row.state, row.message = asked, PENDING, "its rows are on their way from the hub"
        row.revision = row.digest = row.format = None
        row.updated = now
    world.bell.ring()


def forget(world: World, name: str) -> None:
    """The dataset is gone; runs keep the blob they have pinned."""
    with world.store.write() as session:
        row = find(session, name)
        if row is not None:
            session.delete(row)


def pending(session: Session) -> list[ImportRow]:
    """What is left to bring, the oldest first."""
    query = select(ImportRow).where(ImportRow.state == PENDING).order_by(ImportRow.created, ImportRow.dataset)
    return list(session.scalars(query))


def bring(world: World, wanted: ImportRow) -> None:
    """Download, join, check and keep the rows of one import; what is wrong with them is recorded, not raised."""
    with world.store.read() as session:
        source = _source(session, wanted)
    revision, stored = None, None
    try:
        revision, stored = _stored(world, HubDataset.model_validate(wanted.hub))
        said = _checked(world.blobs, source, stored)
        state = READY
    except (DataError, OutsideError, RefusedError) as problem:
        state, said = FAILED, str(problem)
    except Exception as problem:  # what is left pending would be begun again and again
        log.exception("the import of dataset %s failed", wanted.dataset)
        state, said = FAILED, f"its rows could not be brought: {problem}; create it again to try again"
    with world.store.write() as session:
        row = find(session, wanted.dataset)
        if row is None or row.hub != wanted.hub:
            return  # deleted, or made anew of something else, in the meantime
        row.state, row.message, row.revision, row.updated = state, said, revision, world.clock()
        if state == READY and stored is not None:
            row.digest, row.format = stored.digest, stored.format
    world.bell.ring()


def _source(session: Session, wanted: ImportRow) -> DatasetInput | None:
    address = Address("dataset", wanted.dataset)
    row = resources.find(session, address, wanted.namespace)
    return None if row is None or row.retired else job_input(row)


def _stored(world: World, wanted: HubDataset) -> tuple[str, Stored]:
    with (
        tempfile.TemporaryDirectory(dir=world.home.root, prefix=LEFTOVER) as place,
        ExitStack() as open_files,
    ):
        folder = Path(place)
        split = hub.fetch(world.settings, wanted, folder)
        files = [_joined(split.files, folder)] if _must_be_joined(split.files) else list(split.files)
        parts = [Upload(file.name, open_files.enter_context(file.open("rb"))) for file in files]
        return split.revision, uploads.store(world.blobs, parts, config=None, split=wanted.split)


def _must_be_joined(files: tuple[Path, ...]) -> bool:
    return len(files) > 1 and any(file.suffix != ".parquet" for file in files)


def _joined(files: tuple[Path, ...], folder: Path) -> Path:
    """Several text files as one of JSON lines."""
    joined = folder / "joined.jsonl"
    with joined.open("w", encoding="utf-8") as out:
        for file in files:
            for record in records(file, None):
                out.write(json.dumps(record, default=str) + "\n")
    return joined


def _checked(blobs: BlobStore, source: DatasetInput | None, stored: Stored) -> str:
    if source is None:
        return "its dataset was deleted"
    rows = DatasetInput.model_validate(
        {**source.model_dump(mode="json"), "digest": stored.digest, "format": stored.format}
    )
    results = list(DatasetCheck(rows, [blobs.existing(stored.digest)]).run())
    if failed := [result.message for result in results if result.status == "fail"]:
        raise DataError("; ".join(failed))
    return "; ".join(result.message for result in results if result.name != "columns")
