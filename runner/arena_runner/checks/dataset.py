"""One streaming pass over a dataset's files: are the columns there, is anything empty, doubled or of an odd type?

Memory does not grow with the text, only by two 8-byte hashes per row. Nothing here needs a model; what is measured with
its tokenizer is in `lengths.py`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena_gitops.spec.job import COLUMNS, DatasetCategory, DatasetInput
from arena_gitops.spec.wire import CheckResult
from arena_runner.checks.lengths import Lengths
from arena_runner.data import DataError, records

LONGEST_SAMPLE = 120
FEW, LOPSIDED = 20, 0.9
"""pairs, and the share of them from which on their lengths tell the chosen one"""


@dataclass(slots=True)
class Tally:
    """What one pass over the rows has counted."""

    rows: int = 0
    empty: Counter[str] = field(default_factory=Counter)
    types: Counter[tuple[str, str]] = field(default_factory=Counter)
    doubled: int = 0
    contradicting: int = 0
    alike: int = 0
    """rows that ask what another does, apart from case, quotes and final marks"""
    indifferent: int = 0
    """preference rows whose chosen and rejected texts are equal"""
    longer: int = 0
    """preference rows whose chosen text is longer than the rejected one"""
    shorter: int = 0
    ragged: int = 0
    sample: str = ""
    answers: dict[int, int] = field(default_factory=dict)
    """hash of the asking text → hash of the rest"""
    bare: set[int] = field(default_factory=set)
    """hashes of the asking texts without case, quotes and final marks"""


class DatasetCheck:
    """Checks a dataset's files: several, if it is of the hub. `rows` afterwards has a few for the reward's check."""

    def __init__(
        self, source: DatasetInput, paths: Sequence[Path], *, keep: int = 8, lengths: Lengths | None = None
    ) -> None:
        self._source, self._paths, self._keep = source, paths, keep
        self._lengths = lengths
        self._tally = Tally()
        self.rows: list[dict[str, str]] = []

    @property
    def questions(self) -> int:
        """How many different ones were found."""
        return len(self._tally.answers)

    def run(self) -> Iterator[CheckResult]:
        """Yield every verdict."""
        unmapped = [
            role for role in COLUMNS[self._source.category] if role not in self._source.column_mapping
        ]
        if unmapped:
            roles = ", ".join(unmapped)
            yield self._fail("columns", f"column_mapping lacks {roles}, needed by {self._source.category}")
            return
        for path in self._paths:
            try:
                problem = self._read(path)
            except (DataError, UnicodeDecodeError, KeyError) as error:
                yield self._unreadable(path, error)
                return
            if problem:
                yield self._fail("columns", problem)
                return
        yield from self._verdicts()

    def _read(self, path: Path) -> str:
        """Count a file's rows; what is wrong with its columns."""
        for number, record in enumerate(records(path, self._source.format)):
            if number == 0 and (problem := self._missing(record)):
                return problem
            self._count(record)
        return ""

    def _missing(self, record: Mapping[str, Any]) -> str:
        lost = []
        for role, column in self._source.column_mapping.items():
            if column not in record:
                near = difflib.get_close_matches(column, list(record), n=1)
                lost.append(f"{column!r} ({role}{f', did you mean {near[0]!r}?' if near else ''})")
        found = ", ".join(map(str, record))
        return f"the file has no column {', '.join(lost)}; its columns: {found}" if lost else ""

    def _count(self, record: Mapping[str, Any]) -> None:
        tally = self._tally
        tally.rows += 1
        tally.ragged += None in record  # how csv.DictReader files surplus fields
        texts: dict[str, str] = {}
        for role, column in self._source.column_mapping.items():
            value = record.get(column)
            texts[role] = value if isinstance(value, str) else "" if value is None else str(value)
            tally.empty[column] += not texts[role].strip()
            if value is not None and not isinstance(value, str):
                tally.types[column, type(value).__name__] += 1
        if not all(texts[role].strip() for role in COLUMNS[self._source.category]):
            return
        self._remember(texts)

    def _remember(self, texts: dict[str, str]) -> None:
        tally = self._tally
        asking, *rest = COLUMNS[self._source.category]
        question = _hash(" ".join(texts[asking].split()))
        if question not in tally.answers:
            bare = _hash(
                re.sub(r"[\"'\u2018-\u201f]", "", " ".join(texts[asking].split()).casefold()).rstrip(
                    ".,!?;: "
                )
            )
            tally.alike += bare in tally.bare
            tally.bare.add(bare)
        if self._lengths is not None:
            self._lengths.see(self._source.category, texts)
        answer = _hash("\0".join(texts[role] for role in rest))
        if question in tally.answers:
            same = tally.answers[question] == answer
            tally.doubled += same
            tally.contradicting += not same
        tally.answers.setdefault(question, answer)
        if self._source.category is DatasetCategory.PREFERENCE:
            tally.indifferent += texts["chosen"] == texts["rejected"]
            tally.longer += len(texts["chosen"]) > len(texts["rejected"])
            tally.shorter += len(texts["chosen"]) < len(texts["rejected"])
        if len(self.rows) < self._keep:
            self.rows.append(texts)

    def _verdicts(self) -> Iterator[CheckResult]:
        tally = self._tally
        if not tally.answers:
            yield self._fail("rows", f"none of the {tally.rows} rows has text in every mapped column")
            return
        yield self._pass("columns", ", ".join(f"{r} ← {c}" for r, c in self._source.column_mapping.items()))
        first = "; ".join(f"{role}: {_short(text)}" for role, text in self.rows[0].items())
        yield self._pass("rows", f"{tally.rows} rows, {len(tally.answers)} different; the first: {first}")
        for name, message in self._remarks():
            yield self._verdict(name, "warn", message)
        measured = self._lengths.verdict(self._source.address) if self._lengths else None
        if measured is not None:
            yield measured

    def _remarks(self) -> Iterator[tuple[str, str]]:
        tally = self._tally
        for column, count in tally.empty.items():
            if count:
                yield "empty", f"{self._share(count)} have nothing in column {column!r} and are left out"
        if tally.doubled:
            yield "duplicates", f"{self._share(tally.doubled)} repeat an earlier row"
        if tally.contradicting and self._source.category is DatasetCategory.REASONING:
            yield "duplicates", f"{self._share(tally.contradicting)} repeat a question with another answer"
        if tally.alike:
            text = f"{self._share(tally.alike)} ask what another row asks, apart from case, quotes and final marks"
            yield "leakage", f"{text}; the two may fall on both sides of the split for evaluation"
        for (column, kind), count in tally.types.items():
            yield (
                "types",
                f"{self._share(count)} have a {kind} in column {column!r}; it is trained on as text",
            )
        if tally.ragged:
            yield "types", f"{self._share(tally.ragged)} have more fields than the header names"
        if tally.indifferent:
            yield "preferences", f"{self._share(tally.indifferent)} have equal chosen and rejected texts"
        if (told := tally.longer + tally.shorter) >= FEW and max(
            tally.longer, tally.shorter
        ) >= LOPSIDED * told:
            which = "longer" if tally.longer > tally.shorter else "shorter"
            text = f"the chosen text is the {which} one in {self._share(max(tally.longer, tally.shorter))}"
            yield "preferences", f"{text}; length alone tells it, and that is what would be learned"

    def _share(self, count: int) -> str:
        return f"{count} of {self._tally.rows} rows ({count / self._tally.rows:.1%})"

    def _unreadable(self, path: Path, error: Exception) -> CheckResult:
        # The reader knows the file by its digest; people know it by the dataset's address.
        text = str(error).removeprefix(path.name).lstrip(": ")
        place = re.match(r"(\d+):\d+: ", text)
        line = int(place[1]) if place else None
        return self._fail("file", f"line {line}: {text[place.end() :]}" if place else text, line)

    def _fail(self, name: str, message: str, line: int | None = None) -> CheckResult:
        return CheckResult(address=self._source.address, name=name, status="fail", message=message, line=line)

    def _pass(self, name: str, message: str) -> CheckResult:
        return CheckResult(address=self._source.address, name=name, status="pass", message=message)

    def _verdict(self, name: str, status: Any, message: str) -> CheckResult:
        return CheckResult(address=self._source.address, name=name, status=status, message=message)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SAMPLE else line[:LONGEST_SAMPLE] + "…"
