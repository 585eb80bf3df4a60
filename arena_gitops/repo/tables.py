"""The columns of a data file, from its first rows; enough to refuse a column mapping before anything runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from arena_gitops.repo.files import FileProblemError

Format = Literal["csv", "jsonl", "parquet"]

_LOOKED_AT = 100
"""Rows of a JSONL file that are searched for columns; a row may leave some out."""


def format_of(path: str) -> Format:
    """The format by the file's ending."""
    match path.rpartition(".")[2]:
        case "csv":
            return "csv"
        case "jsonl":
            return "jsonl"
        case "parquet":
            return "parquet"
    raise FileProblemError(f"{path} is no .csv, .jsonl or .parquet file", "dataset-format")


def columns(place: Path, path: str) -> tuple[str, ...] | None:
    """Names of the columns; None for Parquet, which the platform's check reads.

    Raises:
        FileProblemError: the file is empty or not of its format.
    """
    kind = format_of(path)
    if kind == "parquet":
        return None
    try:
        found = _csv_header(place) if kind == "csv" else tuple(_jsonl_keys(place, path))
    except UnicodeDecodeError as error:
        raise FileProblemError(f"{path} is not UTF-8 text", "dataset-format", "Save it as UTF-8.") from error
    except csv.Error as error:
        raise FileProblemError(f"{path} is not CSV: {error}", "dataset-format") from error
    if not found:
        raise FileProblemError(f"{path} is empty", "empty-dataset")
    return found


def header_text(place: Path) -> str:
    """The first line, for the search for secrets."""
    with place.open("rb") as file:
        return file.readline(1 << 16).decode(errors="replace")


def _csv_header(place: Path) -> tuple[str, ...]:
    with place.open(encoding="utf-8-sig", newline="") as file:
        return tuple(next(csv.reader(file, strict=True), ()))


def _jsonl_keys(place: Path, path: str) -> Iterator[str]:
    seen: set[str] = set()
    rows = 0
    with place.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            for key in _row(line, path, number):
                if key not in seen:
                    seen.add(key)
                    yield key
            rows += 1
            if rows == _LOOKED_AT:
                return


def _row(line: str, path: str, number: int) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise FileProblemError(f"{path}:{number} is not JSON: {error}", "dataset-format") from error
    if not isinstance(row, dict):
        raise FileProblemError(f"{path}:{number} is not a JSON object", "dataset-format")
    return row
