"""Rows on disk: a dataset of any size at the memory of one number per row.

A temporary file in the run's folder holds one JSON line per row, whatever the source was (CSV with line breaks in
its fields, parquet, JSON lines). It has no name, so nothing of it is left when the process ends.
"""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import numpy as np

Row = Mapping[str, str]
"""role → text"""


class Spool(Sequence[Row]):
    """Rows in the order they came; read again by number."""

    def __init__(self, folder: Path, rows: Iterable[Row]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".rows-")  # noqa: SIM115 - lives as long as this
        self._starts = array("Q", [0])
        self._roles: tuple[str, ...] | None = None
        try:
            for row in rows:
                self._append(row)
            self._file.flush()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return Picked(self, np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start, stop = self._starts[index % len(self)], self._starts[index % len(self) + 1]
        return self._row(os.pread(self._file.fileno(), stop - start, start))

    def __iter__(self) -> Iterator[Row]:
        """One after the other, read ahead."""
        self._file.seek(0)
        return map(self._row, self._file)

    def _append(self, row: Row) -> None:
        self._roles = self._roles or tuple(row)
        line = json.dumps([row[role] for role in self._roles], separators=(",", ":")).encode() + b"\n"
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def _row(self, line: bytes) -> Row:
        assert self._roles is not None
        return dict(zip(self._roles, json.loads(line), strict=True))


class Picked(Sequence[Row]):
    """Some rows of others, in an order of their own."""

    def __init__(self, rows: Sequence[Row], indices: np.ndarray) -> None:
        self._rows, self._indices = rows, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return Picked(self._rows, self._indices[index])
        return self._rows[int(self._indices[index])]
