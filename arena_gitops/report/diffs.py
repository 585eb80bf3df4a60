"""What changed inside files, as lines that every view shares: code as a unified diff, rows by key.

All of it is text of strangers: one line stays one line, and nothing in it moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena_gitops.plan.code import FileDiff
from arena_gitops.plan.compare import differences
from arena_gitops.plan.model import Change, Plan
from arena_gitops.plan.rows import Balance, DataDiff, Example, Lengths
from arena_gitops.plan.scores import SHOWN, ScorePair
from arena_gitops.report.untrusted import plain

Styled = tuple[str, str]
"""A line and its style."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def code(change: Change) -> Iterator[Styled]:
    """Every file of the code, a heading and its lines."""
    for file in change.code:
        yield _heading(file), "bold"
        for line in file.lines:
            yield f"  {plain(line)}", _STYLES.get(line[:1], "dim")
        if file.omitted:
            yield f"  … {file.omitted:,} more lines of the diff", "dim"


def _heading(file: FileDiff) -> str:
    if file.note:
        return f"{plain(file.path)}  {file.note}"
    cosmetic = ", behaves the same" if file.cosmetic else ""
    return f"{plain(file.path)}  +{file.added} -{file.removed} lines{cosmetic}"


def data(change: Change) -> Iterator[Styled]:
    """The rows of a dataset: how many came and went, examples, and what the whole looks like."""
    found = change.data
    if found is None:
        return
    yield f"{plain(found.path)}  {_counts(found)}", "bold"
    for example in found.examples:
        yield f"  {_example(example)}", _STYLES.get(example.op, "yellow")
    for lengths in found.lengths:
        yield f"  {_lengths(lengths)}", "dim"
    for balance in found.balance:
        yield f"  {_balance(balance)}", "dim"


def _counts(found: DataDiff) -> str:
    if found.before is None or found.after is None:
        return found.note
    rows = f"{found.before:,} → {found.after:,} rows"
    if found.same_rows:
        return f"{rows}: the same, only written differently"
    if found.reordered:
        return f"{rows}: the same in another order"
    if found.added is None or found.removed is None or found.changed is None:
        return f"{rows}; {found.note}"
    moved = [f"{n:,} {what}" for n, what in ((found.added, "added"), (found.removed, "removed")) if n]
    if found.changed:
        moved.append(
            f"{found.changed:,} changed" + (f" (told apart by {plain(found.key)})" if found.key else "")
        )
    return f"{rows}: {', '.join(moved) or 'none other'}; {_columns(found)}"


def _columns(found: DataDiff) -> str:
    moved = [f"+{plain(column)}" for column in found.columns_added]
    moved += [f"-{plain(column)}" for column in found.columns_removed]
    return f"columns {' '.join(moved)}" if moved else "columns same"


def _example(example: Example) -> str:
    told = f"{example.op} {plain(example.key)}"
    if not example.column:
        return told
    return f"{told}  {plain(example.column)}: {plain(example.old)} → {plain(example.new)}"


def _lengths(found: Lengths) -> str:
    before, after = found.before, found.after
    names = ("median", "p95", "longest")
    if before is None or after is None:
        known = after or before or (0, 0, 0)
        parts = [f"{name} {number:,}" for name, number in zip(names, known, strict=True)]
    else:
        parts = [
            f"{name} {old:,}" + ("" if old == new else f" → {new:,}")
            for name, old, new in zip(names, before, after, strict=True)
        ]
    return f"characters of {plain(found.column)}: {', '.join(parts)}"


def _balance(found: Balance) -> str:
    parts = [
        f"{plain(share.value) or '(empty)'} {share.before:,}"
        + ("" if share.before == share.after else f" → {share.after:,}")
        for share in found.shares
    ]
    return f"rows by {plain(found.column)}: {', '.join(parts)}"


def scores(change: Change) -> Iterator[Styled]:
    """What a reward paid and pays: the samples that it now scores otherwise."""
    found = change.scores
    if found is None:
        return
    changed, means = found.changed, found.means()
    mean = f"mean {means[0]:.4g} → {means[1]:.4g}, " if means else ""
    yield f"scores of {len(found.pairs):,} samples by arena check: {mean}{len(changed):,} changed", "bold"
    width = max((len(plain(pair.sample)) for pair in changed[:SHOWN]), default=0)
    for pair in changed[:SHOWN]:
        yield f"  {plain(pair.sample):<{width}}  {_pair(pair)}", "yellow"
    if len(changed) > SHOWN:
        yield f"  … {len(changed) - SHOWN:,} more samples", "dim"


def _pair(pair: ScorePair) -> str:
    sides = (_score(pair.old, pair.old_error), _score(pair.new, pair.new_error))
    expected = "" if pair.expect is None else f" (expected {pair.expect:.4g})"
    return f"{sides[0]} → {sides[1]}{expected}"


def _score(total: float | None, error: str) -> str:
    return f"{total:.4g}" if total is not None else f"fails: {plain(error)}"


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def comparison(before: Plan, now: Plan) -> Iterator[str]:
    """What is no longer as in an earlier plan, one line per resource."""
    if before.plan_id == now.plan_id:
        yield f"The same as plan {before.plan_id}."
        return
    yield f"Not as plan {before.plan_id}:"
    found = differences(before, now)
    width = max((len(one.address) for one in found), default=0)
    for one in found:
        turn = " → ".join(dict.fromkeys(part for part in (one.old, one.new) if part))
        why = f"  {plain(one.why)}" if one.why else ""
        yield f"  {_SIGNS[one.op]} {one.address:<{width}}  {turn}{why}"
    if not found:
        yield "  it was made for another platform, stack, namespace or version of this tool"
