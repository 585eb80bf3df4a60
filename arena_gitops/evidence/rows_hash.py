"""What rows are, whatever they are written like: one hash for equal rows in the same order, read as a stream.

It is kept with a dataset when that is applied. A later plan reads the new file once and needs nothing of the old one,
so that it also holds for files that nobody would fetch again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from json import JSONEncoder
from typing import Any, BinaryIO, TextIO

from arena_gitops.plan.model import Plan
from arena_gitops.spec.lifecycle import ROWS_HASH
from arena_gitops.spec.resource import Address
from arena_gitops.state import Blob, DesiredResource, DesiredState

ROWS_BYTES = 256 << 20
"""Of a file whose rows are read one by one; that takes seconds. What is longer is known by its bytes alone."""
LINE = 1 << 20
"""Characters of one line; a longer one is no row."""

_plain = JSONEncoder(separators=(",", ":")).encode
_sorted = JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def rows_hash(blob: Blob, form: str) -> tuple[str, int] | None:
    """Hash and number of the rows of a file; None where they are not to be had, too many, or not of the format."""
    if form not in {"csv", "jsonl"} or blob.absent or blob.size > ROWS_BYTES:
        return None
    try:
        with io.BytesIO(blob.data) if blob.data is not None else blob.path.open("rb") as raw:
            witness = _Witness(raw)
            found = _hash(
                io.TextIOWrapper(io.BufferedReader(witness, 1 << 16), "utf-8-sig", newline=""), form
            )
            return found if witness.digest == blob.digest else None
    except (OSError, ValueError, csv.Error, RecursionError):
        return None


def with_rows_hashes(desired: DesiredState, planned: Plan) -> DesiredState:
    """The desired state an apply writes: datasets that it writes have the hash of their rows."""
    written = [change.at for change in planned.changes if change.action.acts and not change.action.removes]
    found: dict[Address, DesiredResource] = {}
    for address in written:
        resource = desired.resources.get(address)
        if address.kind == "dataset" and resource is not None and (hashed := _of(resource)) is not None:
            found[address] = replace(resource, spec={**resource.spec, ROWS_HASH: hashed})
    return replace(desired, resources={**desired.resources, **found}) if found else desired


def _of(resource: DesiredResource) -> str | None:
    blob = next((blob for blob in resource.blobs if blob.digest == resource.spec.get("digest")), None)
    found = rows_hash(blob, str(resource.spec.get("format"))) if blob is not None else None
    return found[0] if found else None


class _Witness(io.RawIOBase):
    """Bytes as they are read, and what they hash to: a file may change while it is read."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Of everything that was read."""
        return f"sha256:{self._hash.hexdigest()}"

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read, and take note."""
        view = memoryview(buffer)
        data = self._raw.read(len(view))
        view[: len(data)] = data
        self._hash.update(data)
        return len(data)


def _hash(file: TextIO, form: str) -> tuple[str, int]:
    hashed, count = hashlib.sha256(form.encode()), 0
    for row in _csv(file) if form == "csv" else _jsonl(file):
        hashed.update(row.encode() + b"\n")
        count += 1
    return f"sha256:{hashed.hexdigest()}", count - (form == "csv")


def _csv(file: TextIO) -> Iterator[str]:
    """The header in order of names, then each row's cells in that order: where a column stands does not count."""
    reader = csv.reader(_lines(file), strict=True)
    header = next(reader, [])
    order = sorted(range(len(header)), key=header.__getitem__)
    whole = len(set(header)) == len(header)
    yield _plain(sorted(header))
    for cells in reader:
        if whole and len(cells) == len(header):
            yield _plain([cells[place] for place in order])
        elif cells:
            yield _sorted(dict(zip(header, cells, strict=False)))


def _jsonl(file: TextIO) -> Iterator[str]:
    """Each object with its keys in order; 1 is not "1", not 1.0, and not true."""
    for line in _lines(file):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, Mapping):
                raise ValueError("a line is not a JSON object")
            yield _sorted(row)


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(LINE):
        if len(line) == LINE:
            raise ValueError("a line is too long to be a row")
        yield line
