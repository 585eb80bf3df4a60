"""Rows of a data file as text, one at a time, from a path or from bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TextIO

from arena_gitops.evidence.contents import content_of
from arena_gitops.plan.rows import DataDiff, Row, Rows, data_diff
from arena_gitops.spec.wire import ResourceDocument
from arena_gitops.state import Blob, DesiredResource

DATA_BYTES = 32 << 20
"""Of each side; a plan does not read larger files, and says so."""
KEYS = ("question", "prompt")
"""Roles that tell rows apart, in order of preference."""


class UnreadableRowsError(Exception):
    """A file is not of its format."""


def compared(resource: DesiredResource, old: bytes | None, blob: Blob | None) -> DataDiff:
    """The diff of a dataset's file, or why there is none."""
    path = blob.path.name if blob is not None else str(resource.address)
    form = str(resource.spec.get("format"))
    new = content_of(blob, DATA_BYTES) if blob is not None else None
    if form not in {"csv", "jsonl"}:
        return DataDiff(path=path, note=f"rows of {form} files are not compared in a plan")
    if blob is not None and max(blob.size, len(old or b"")) > DATA_BYTES:
        return DataDiff(path=path, note=f"larger than {DATA_BYTES >> 20} MiB: not compared in a plan")
    if old is None or new is None:
        return DataDiff(path=path, note="not compared: one of the two contents is not to be had here")
    mapping = resource.spec.get("column_mapping") or {}
    key = next((str(mapping[role]) for role in KEYS if role in mapping), "")
    try:
        return data_diff(path, key, rows(old, form), rows(new, form))
    except UnreadableRowsError as error:
        return DataDiff(path=path, note=f"not compared: {error}")


def same_rows(old: bytes, new: bytes, form: str) -> bool:
    """Whether two readable files of a format have equal rows in the same order; compared one by one, not by hashes."""
    pairs = zip_longest(_parsed(old, form), _parsed(new, form))
    return all(before == after for before, after in pairs)


def _parsed(data: bytes, form: str) -> Iterator[object]:
    """Rows as a trainer would tell them apart: of JSON, 1 is not "1", not 1.0, and not true."""
    if form == "csv":
        yield from rows(data, form)()
        return
    for line in io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline=""):
        if line.strip():
            yield json.dumps(json.loads(line), sort_keys=True)


def rows(data: bytes, form: str) -> Rows:
    """The rows of a CSV or JSON Lines file; each call begins anew."""

    def begin() -> Iterable[Row]:
        file = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
        return _csv(file) if form == "csv" else _jsonl(file)

    return begin


def _csv(file: TextIO) -> Iterator[Row]:
    try:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        for cells in reader:
            if cells:
                yield dict(zip(header, cells, strict=False))
    except (csv.Error, UnicodeDecodeError) as error:
        raise UnreadableRowsError(str(error)) from error


def _jsonl(file: TextIO) -> Iterator[Row]:
    try:
        for line in file:
            if line.strip():
                yield {str(key): _text(value) for key, value in _object(line).items()}
    except (ValueError, RecursionError) as error:
        raise UnreadableRowsError(str(error)) from error


def _object(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise UnreadableRowsError("a line is not a JSON object")
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def file_of(resource: DesiredResource) -> Blob | None:
    """The file of a dataset in the repository."""
    return next((blob for blob in resource.blobs if blob.digest == resource.spec.get("digest")), None)


def stored_digest(document: ResourceDocument) -> str | None:
    """The content that the platform has of a dataset; None for rows on the hub."""
    digest = document.spec.get("digest")
    return digest if isinstance(digest, str) else None
