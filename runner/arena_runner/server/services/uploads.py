"""Rows that come with a command: one CSV, JSON-lines or parquet file, or the parquet files of a folder.

Several parquet files become one, row group by row group, because a job's dataset is one file by digest.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from arena_runner.server.artifacts import BlobStore
from arena_runner.server.refusals import RefusedError

CHUNK = 1 << 20
Format = Literal["csv", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class Upload:
    """One file as it came in; `name` may be a relative path."""

    name: str
    file: IO[bytes]


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows in the blob store."""

    digest: str
    format: Format


def store(blobs: BlobStore, uploads: list[Upload], *, config: str | None, split: str | None) -> Stored:
    """Keep the rows of these files; of several, those of the config and the split where their paths say so."""
    if len(uploads) == 1:
        return Stored(_keep(blobs, uploads[0].file), _format(uploads[0].name))
    odd = [upload.name for upload in uploads if _format(upload.name) != "parquet"]
    if odd:
        raise RefusedError(422, "bad-files", f"several files must all be parquet; {odd[0]} is not")
    chosen = _named(_named(uploads, config), split or "train")
    with tempfile.TemporaryFile(dir=blobs.root) as merged:
        _merge(sorted(chosen, key=lambda upload: upload.name), merged)
        merged.seek(0)
        return Stored(_keep(blobs, merged), "parquet")


def _format(name: str) -> Format:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in FORMATS:
        raise RefusedError(422, "bad-files", f"{name} ends in none of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def _named(uploads: list[Upload], word: str | None) -> list[Upload]:
    """Those whose path has the word; all of them when none has."""
    found = [u for u in uploads if word and word.lower() in re.split(r"[/._-]", u.name.lower())]
    return found or uploads


def _keep(blobs: BlobStore, file: IO[bytes]) -> str:
    """Two passes: the name of a blob is its hash."""
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    name = f"sha256:{digest.hexdigest()}"
    file.seek(0)
    if blobs.has(name):
        return name
    incoming = blobs.receive(name)
    try:
        while chunk := file.read(CHUNK):
            incoming.write(chunk)
        incoming.commit()
    finally:
        incoming.abandon()  # of no effect once committed
    return name


def _merge(uploads: Iterable[Upload], target: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    for upload in uploads:
        try:
            source = pq.ParquetFile(upload.file)
            writer = writer or pq.ParquetWriter(target, source.schema_arrow)
            for batch in source.iter_batches():
                writer.write_batch(batch)
        except (pa.ArrowException, ValueError) as problem:
            name = Path(upload.name).as_posix()
            message = f"{name} is no parquet file with the columns of the others: {problem}"
            raise RefusedError(422, "bad-files", message) from problem
    if writer is not None:
        writer.close()
