"""Rows of a dataset, and the three splits that never leak into each other.

A row is the text of its roles (`question`, `answer` …), whatever the file called its columns. Splits go by hash of
the question, so that they do not depend on the order of the file, and every copy of a question falls into one
split: *train* is trained on, *eval* decides fitness, *test* is read once at the end by nothing that selects.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arena_gitops.errors import ArenaError
from arena_gitops.spec.job import COLUMNS, DatasetInput
from arena_runner.spool import Picked, Row


class DataError(ArenaError):
    """The dataset cannot be trained on; the message names the file and what was expected."""


@dataclass(frozen=True, slots=True)
class Splits:
    """Disjoint in questions; each in the order of its hashes."""

    train: Sequence[Row]
    eval: Sequence[Row]
    test: Sequence[Row]


@dataclass(slots=True)
class LeftOut:
    """Rows that nothing can be learned from."""

    empty: int = 0
    """a mapped column is empty"""
    equal: int = 0
    """the chosen answer is the rejected one"""


def read_rows(source: DatasetInput, files: Iterable[Path], left_out: LeftOut) -> Iterator[Row]:
    """Stream the rows of `files` (one, unless they came from the hub), columns mapped to the category's roles.

    Raises:
        DataError: A file does not parse, a mapped column is missing, or no row is left.
    """
    kept = 0
    for path in files:
        for record in records(path, source.format):
            row = _mapped(record, source, path)
            if row is None:
                left_out.empty += 1
            elif "chosen" in row and row["chosen"] == row["rejected"]:
                left_out.equal += 1
            else:
                kept += 1
                yield row
    if not kept:
        raise DataError(
            f"{source.address}: no row has a value in every mapped column ({left_out.empty} rows read)"
        )


def _mapped(record: Mapping[str, Any], source: DatasetInput, path: Path) -> Row | None:
    missing = sorted({column for column in source.column_mapping.values() if column not in record})
    if missing:
        raise DataError(
            f"{source.address}: {path.name} has no column {', '.join(missing)}; it has {', '.join(map(str, record))}"
        )
    row = {role: _text(record[column]) for role, column in source.column_mapping.items()}
    return row if all(row[role].strip() for role in COLUMNS[source.category]) else None


def _text(value: Any) -> str:
    """Text as it stands, lists and objects as JSON, nothing as the empty string."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def records(path: Path, declared: str | None) -> Iterator[Mapping[str, Any]]:
    """Stream a file's records as they stand, columns unmapped; `declared` wins over the name's suffix."""
    kind = declared or {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(
        path.suffix.lower(), "csv"
    )
    match kind:
        case "jsonl":
            return _json_lines(path)
        case "parquet":
            return _parquet(path)
        case _:
            return _csv(path)


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(1 << 30)  # the default of 128 KiB is shorter than one long document
    with path.open(newline="", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path.name}:{number}:{error.colno}: not JSON: {error.msg}") from error
            if not isinstance(record, dict):
                raise DataError(f"{path.name}:{number}:1: expected an object with one key per column")
            yield record


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        for batch in ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except ArrowException as error:
        raise DataError(f"{path.name}: not a parquet file: {error}") from error


class Questions:
    """Rows gathered by what they ask, the questions in the order of their hashes."""

    def __init__(self, rows: Sequence[Row], *, key: str) -> None:
        self._rows = rows
        # 128 bits of each hash tell apart and order all questions there will ever be.
        digests = b"".join(hashlib.sha256(_asked(row, key).encode()).digest()[:16] for row in rows)
        high, low = np.frombuffer(digests, dtype=">u8").reshape(-1, 2).T
        self._order = np.lexsort((low, high))  # stable: rows of one question stay as they came
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (np.diff(high[self._order]) != 0) | (np.diff(low[self._order]) != 0)
        self._firsts = np.flatnonzero(first)
        """where in the order each question begins"""

    def __len__(self) -> int:
        """How many different ones there are."""
        return len(self._firsts)

    def split(self, *, eval_rows: int, test_rows: int) -> Splits:
        """Deal them into three splits.

        The test split gets `test_rows` unless that is more than half of the questions; the evaluation split gets
        `eval_rows` unless that is more than half of the remainder.
        """
        test, held = cuts(len(self), eval_rows=eval_rows, test_rows=test_rows)
        # Held-out questions are scored once each, so a question that occurs often does not weigh more.
        once = self._order[self._firsts]
        rest = self._order[self._firsts[held] :] if held < len(self) else self._order[:0]
        return Splits(
            train=Picked(self._rows, rest),
            eval=Picked(self._rows, once[test:held]),
            test=Picked(self._rows, once[:test]),
        )


def _asked(row: Row, key: str) -> str:
    return " ".join(row[key].split())


def cuts(count: int, *, eval_rows: int, test_rows: int) -> tuple[int, int]:
    """Where the test split ends and where the evaluation split does; the rest is trained on."""
    test = min(test_rows, count // 2)
    return test, test + min(eval_rows, (count - test) // 2)


def shortage(count: int, *, eval_rows: int, test_rows: int, batch_size: float) -> list[str]:
    """What was asked for and so many questions cannot give; empty when there is enough of everything."""
    test, held = cuts(count, eval_rows=eval_rows, test_rows=test_rows)
    told = [
        f"{name} {asked}: only {given} of {count} different questions are held out for it"
        for name, asked, given in (("eval_rows", eval_rows, held - test), ("test_rows", test_rows, test))
        if given < asked
    ]
    left = count - held
    if left < batch_size:
        told.append(f"batch_size {batch_size:g}: only {left} questions are left to train on, so rows repeat")
    return told
