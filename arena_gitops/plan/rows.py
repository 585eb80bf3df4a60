"""What changed in a dataset: rows by key, columns, the balance of categories and the lengths of texts.

Rows come one at a time and are not kept: a row is two hashes in memory, so that a comparison needs about a hundred
bytes per row, and only up to a number of rows. Pure: who reads the files is somebody else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from arena_gitops.spec.resource import Frozen

COMPARED_ROWS = 400_000
"""Per side; a longer file is counted and described, its rows are not compared one by one."""
CATEGORIES = 12
"""A column with at most so many different short values is one of categories."""
SHORT = 40
EXAMPLES = 3
"""Rows of each sort that are quoted."""
QUOTED = 80

Row = Mapping[str, str]
Rows = Callable[[], Iterable[Row]]
"""Begins the file anew each time."""


class Lengths(Frozen):
    """Characters of one column: the median, the 95th percentile and the longest, before and after."""

    column: str
    before: tuple[int, int, int] | None = None
    after: tuple[int, int, int] | None = None


class Share(Frozen):
    """How often one value of a column occurs, before and after."""

    value: str
    before: int = 0
    after: int = 0


class Balance(Frozen):
    """The categories of one column."""

    column: str
    shares: tuple[Share, ...]


class Example(Frozen):
    """One row that was added, removed or changed, by its key."""

    op: str
    """`+`, `-` or `~`"""
    key: str
    column: str = ""
    """of a changed row: the first column that differs"""
    old: str = ""
    new: str = ""


class DataDiff(Frozen):
    """A dataset before and after."""

    path: str
    key: str = ""
    """column by which rows are told apart"""
    before: int | None = None
    """rows"""
    after: int | None = None
    added: int | None = None
    """None where rows were not compared one by one"""
    removed: int | None = None
    changed: int | None = None
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    same_rows: bool = False
    """the same rows in the same order: only how they are written differs"""
    reordered: bool = False
    lengths: tuple[Lengths, ...] = ()
    balance: tuple[Balance, ...] = ()
    """of columns of categories whose counts differ"""
    examples: tuple[Example, ...] = ()
    note: str = ""
    """why there is no comparison, or not all of one"""


@dataclass(slots=True)
class _Profile:
    """One side in one pass."""

    key: str
    remembers: bool = False
    """whether the rows' hashes are kept"""
    rows: int = 0
    columns: dict[str, None] = field(default_factory=dict)
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    values: dict[str, Counter[str] | None] = field(default_factory=dict)
    seen: Counter[int] = field(default_factory=Counter)
    known: dict[int, int] = field(default_factory=dict)
    order: int = 0

    @property
    def compared(self) -> bool:
        """Whether rows are few enough to be told apart."""
        return self.rows <= COMPARED_ROWS

    def take(self, row: Row) -> tuple[int, int]:
        """Count a row; its two hashes: key with occurrence, and content."""
        self.rows += 1
        for column, text in row.items():
            self.columns[column] = None
            self.lengths.setdefault(column, Counter())[_rounded(len(text))] += 1
            self._value(column, text)
        here, content = self.identity(row), _hash(repr(sorted(row.items())))
        self.order = hash((self.order, content))
        if not self.compared:
            self.known.clear()
            self.seen.clear()
        elif self.remembers:
            self.known[here] = content
        return here, content

    def identity(self, row: Row) -> int:
        """A row by its key, and which of the rows with that key it is."""
        key = _hash(row.get(self.key, ""))
        if self.compared:
            self.seen[key] += 1
        return hash((key, self.seen[key]))

    def _value(self, column: str, text: str) -> None:
        counter = self.values.setdefault(column, Counter())
        if counter is not None:
            counter[text] += 1
            if len(counter) > CATEGORIES or len(text) > SHORT:
                self.values[column] = None


def data_diff(path: str, key: str, old: Rows, new: Rows) -> DataDiff:
    """Compare two contents of a dataset; reads the old one twice where rows are to be quoted."""
    before, after = _Profile(key, remembers=True), _Profile(key)
    for row in old():
        before.take(row)
    fresh: list[Example] = []
    changed: dict[int, Row] = {}
    counts = Counter[str]()
    left = before.known
    for row in new():
        here, content = after.take(row)
        if not before.compared:
            continue
        known = left.pop(here, None)
        if known is None:
            counts["+"] += 1
            if counts["+"] <= EXAMPLES:
                fresh.append(Example(op="+", key=_quoted(row.get(key, ""))))
        elif known != content:
            counts["~"] += 1
            if counts["~"] <= EXAMPLES:
                changed[here] = dict(row)
    compared = before.compared and after.compared
    gone = frozenset(list(left)[:EXAMPLES]) if compared else frozenset()
    quoted = _from_old(old, key, changed, gone) if compared and (changed or gone) else []
    same = compared and not counts and not left
    return DataDiff(
        path=path,
        key=key,
        before=before.rows,
        after=after.rows,
        added=counts["+"] if compared else None,
        removed=len(left) if compared else None,
        changed=counts["~"] if compared else None,
        columns_added=tuple(c for c in after.columns if c not in before.columns),
        columns_removed=tuple(c for c in before.columns if c not in after.columns),
        same_rows=same and before.order == after.order,
        reordered=same and before.order != after.order,
        lengths=tuple(_lengths(before, after)),
        balance=tuple(_balances(before, after)),
        examples=(*fresh, *quoted) if compared else (),
        note="" if compared else f"more than {COMPARED_ROWS:,} rows: counted, not compared one by one",
    )


def _from_old(old: Rows, key: str, changed: Mapping[int, Row], gone: frozenset[int]) -> list[Example]:
    """The earlier text of the rows that are quoted."""
    found: list[Example] = []
    counter = _Profile(key)
    for row in old():
        here = counter.identity(row)
        if here in gone:
            found.append(Example(op="-", key=_quoted(row.get(key, ""))))
        elif here in changed:
            now = changed[here]
            column = next((c for c in {**row, **now} if row.get(c) != now.get(c)), "")
            old_text, new_text = _quoted(row.get(column, "")), _quoted(now.get(column, ""))
            found.append(
                Example(op="~", key=_quoted(row.get(key, "")), column=column, old=old_text, new=new_text)
            )
        if len(found) == len(changed) + len(gone):
            break
    return sorted(found, key=lambda example: example.op, reverse=True)


def _lengths(before: _Profile, after: _Profile) -> Iterable[Lengths]:
    for column in {**before.columns, **after.columns}:
        old, new = before.lengths.get(column), after.lengths.get(column)
        found = Lengths(
            column=column, before=_quantiles(old) if old else None, after=_quantiles(new) if new else None
        )
        if found.before != found.after:
            yield found


def _balances(before: _Profile, after: _Profile) -> Iterable[Balance]:
    for column in {**before.columns, **after.columns}:
        old, new = before.values.get(column, Counter()), after.values.get(column, Counter())
        if old is None or new is None or old == new or not 1 < len({*old, *new}) <= CATEGORIES:
            continue
        if max(len(old), len(new)) * 2 > max(before.rows, after.rows):
            continue  # every row has a value of its own: no categories, only few rows
        values = sorted({*old, *new}, key=lambda value: (-max(old[value], new[value]), value))
        shares = (Share(value=value, before=old[value], after=new[value]) for value in values)
        yield Balance(column=column, shares=tuple(shares))


def _quantiles(lengths: Counter[int]) -> tuple[int, int, int]:
    """Median, 95th percentile (nearest rank) and maximum."""
    total = sum(lengths.values())
    ordered = sorted(lengths)
    return _rank(ordered, lengths, 0.5 * total), _rank(ordered, lengths, 0.95 * total), ordered[-1]


def _rank(ordered: Sequence[int], lengths: Counter[int], wanted: float) -> int:
    done = 0
    for length in ordered:
        done += lengths[length]
        if done >= wanted:
            return length
    return ordered[-1]


def _rounded(length: int) -> int:
    """Lengths beyond a page are counted in steps, so that a histogram stays small."""
    return length if length < 4096 else length - length % 256


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 1] + "…"
