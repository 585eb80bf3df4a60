"""What a dataset's new content is, by its rows."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import ROWS, small

from arena_gitops.evidence.tables import rows
from arena_gitops.plan import rows as module
from arena_gitops.plan.rows import Share, data_diff
from arena_gitops.report import diffs


def of(old, new, key="q"):
    return data_diff("d.csv", key, lambda: iter(old), lambda: iter(new))


def row(q, a="1", **more):
    return {"q": q, "a": a, **more}


def test_rows_are_told_apart_by_their_key():
    found = of([row("one"), row("two"), row("three")], [row("two", "2"), row("three"), row("four")])
    assert (found.before, found.after) == (3, 3)
    assert (found.added, found.removed, found.changed) == (1, 1, 1)
    assert [(e.op, e.key, e.column, e.old, e.new) for e in found.examples] == [
        ("+", "four", "", "", ""),
        ("~", "two", "a", "1", "2"),
        ("-", "one", "", "", ""),
    ]


def test_several_rows_of_one_key_are_counted_one_by_one():
    found = of([row("same", "1"), row("same", "2")], [row("same", "1"), row("same", "2"), row("same", "3")])
    assert (found.added, found.removed, found.changed) == (1, 0, 0)


def test_a_new_column_is_named_and_changes_every_row():
    found = of([row("one"), row("two")], [row("one", level="easy"), row("two", level="hard")])
    assert (found.columns_added, found.columns_removed, found.changed) == (("level",), (), 2)


def test_the_same_rows_are_said_to_be_the_same():
    assert of([row("one"), row("two")], [row("one"), row("two")]).same_rows
    assert of([row("one"), row("two")], [row("two"), row("one")]).reordered


def test_lengths_and_balance_describe_the_whole():
    old = [row(f"question {n}", kind="easy" if n % 2 else "hard") for n in range(20)]
    new = [row(f"question {n}", kind="easy") for n in range(20)] + [
        row("a much longer question", kind="hard")
    ]
    found = of(old, new)
    (balance,) = found.balance
    assert (balance.column, balance.shares) == (
        "kind",
        (Share(value="easy", before=10, after=20), Share(value="hard", before=10, after=1)),
    )
    (lengths,) = [one for one in found.lengths if one.column == "q"]
    assert (lengths.before, lengths.after) == ((10, 11, 11), (11, 11, 22))


def test_a_long_file_is_counted_and_not_compared(monkeypatch):
    monkeypatch.setattr(module, "COMPARED_ROWS", 5)
    found = of([row(str(n)) for n in range(6)], [row(str(n)) for n in range(3)])
    assert (found.before, found.after, found.added, found.examples) == (6, 3, None, ())
    assert "not compared one by one" in found.note


KEYS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12")), max_size=8)


@given(KEYS, KEYS)
@settings(max_examples=100, deadline=None)
def test_counts_add_up(before, after):
    """Whatever the rows: what was there, less what went, plus what came, is what is there."""
    old, new = ([row(q, a) for q, a in side] for side in (before, after))
    found = of(old, new)
    assert found.before - found.removed + found.added == found.after
    kept = sum((Counter(q for q, _ in before) & Counter(q for q, _ in after)).values())
    assert found.after - found.added == kept
    assert found.same_rows == (before == after)
    if found.changed == found.added == found.removed == 0:
        assert Counter(before) == Counter(after)


def test_both_formats_hold_the_same_rows():
    table = b'\xef\xbb\xbfq,a\r\n"one, two",1\r\n\r\nthree,2\r\n'
    lines = b'{"q": "one, two", "a": 1}\n\n{"a": 2, "q": "three"}\n'
    assert [dict(r) for r in rows(table, "csv")()] == [dict(r) for r in rows(lines, "jsonl")()]


@pytest.mark.parametrize("broken", [b'a,b\n"never closed', b"a,b\n\xff\xfe,1\n"])
def test_a_file_that_is_not_of_its_format_is_no_reason_to_fail(scene, broken):
    here = scene().applied(small())
    here.platform.read_blob = lambda *_, **__: broken
    change = here.change(small().dataset(rows=ROWS + "a,b\n"), "dataset/words")
    assert change.data.note.startswith("not compared")


def test_a_plan_shows_the_rows_that_came(scene):
    here = scene().applied(small())
    change = here.change(small().dataset(rows=ROWS + "What is 1 + 2?,#### 3\n"), "dataset/words")
    lines = [line for line, _ in diffs.data(change)]
    assert lines[:2] == [
        "words.csv  40 → 41 rows: 1 added; columns same",
        "  + What is 1 + 2?",
    ]


def test_a_file_that_is_too_large_is_not_read(scene, monkeypatch):
    from arena_gitops.evidence import gather

    monkeypatch.setattr(gather, "DATA_BYTES", 10)
    here = scene().applied(small())
    read = []
    here.platform.read_blob = lambda digest, **_: read.append(digest)
    here.change(small().dataset(rows=ROWS + "a,b\n"), "dataset/words")
    assert read == []
