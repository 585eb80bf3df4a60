"""A dataset whose file is only written differently is the same rows: nothing is stale, nothing is trained anew."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import ROWS, small

from arena_gitops.evidence.rows_hash import rows_hash
from arena_gitops.plan.model import Action
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.state import Blob

QUOTED = "\ufeff" + "".join(
    ",".join(f'"{cell}"' for cell in line.split(",")) + "\r\n\r\n" for line in ROWS.splitlines()
)
SWAPPED = "".join(f"{b},{a}\n" for a, b in (line.split(",") for line in ROWS.splitlines()))
REORDERED = "\n".join([*ROWS.splitlines()[:1], *reversed(ROWS.splitlines()[1:])]) + "\n"
EDITED = ROWS.replace("#### 2\n", "#### 3\n")


def stack(rows=ROWS, **dataset):
    experiment = {
        "on_upstream_change": {"dataset": "new_version"}
    }  # whatever counts as other rows is trained on
    return small().dataset(rows=rows, **dataset).experiment(**experiment).deployment()


@pytest.mark.parametrize("rows", [QUOTED, SWAPPED], ids=["quotes", "columns"])
def test_the_same_rows_written_otherwise_are_recorded_and_train_nothing(scene, rows):
    here = scene().applied(stack())
    plan = here.plan(stack(rows))
    (change,) = [change for change in plan.changes if change.action.acts]
    assert (change.address, change.action, change.reason) == (
        "dataset/words",
        Action.UPDATE,
        "cosmetic_change",
    )
    assert "the same rows as v1" in change.message
    here.applied(stack(rows))
    assert not here.plan(stack(rows)).has_changes
    assert [here.document(stack(), at).version for at in ("dataset/words", "experiment/words-grpo")] == [1, 1]


@pytest.mark.parametrize("rows", [REORDERED, EDITED, ROWS + "one more,#### 1\n"])
def test_other_rows_or_another_order_of_them_are_other_content(scene, rows):
    here = scene().applied(stack())
    assert here.change(stack(rows)).action is Action.NEW_VERSION


def test_from_rewritten_to_rewritten_it_is_still_what_was_trained_on(scene):
    here = scene().applied(stack(), stack(QUOTED), stack(SWAPPED))
    assert here.document(stack()).version == 1
    assert not [c for c in here.plan(stack()).changes if c.action is Action.NEW_VERSION]
    assert here.change(stack(EDITED)).action is Action.NEW_VERSION


def test_other_columns_in_the_roles_count_although_the_file_reads_the_same(scene):
    here = scene().applied(stack())
    roles = {"question": "answer", "answer": "question"}
    change = here.change(stack(QUOTED, column_mapping=roles))
    assert change.action is Action.NEW_VERSION


@pytest.mark.parametrize(
    ("old", "new", "versions"), [('"question":1', '"question" : 1', 0), ('"question":1', '"question":1.0', 2)]
)
def test_json_lines_are_compared_by_value_not_by_text(scene, old, new, versions):
    def lines(cell):
        return stack(f'{{{cell}, "answer": "x"}}\n', format="jsonl")

    here = scene().applied(lines(old))
    assert here.plan(lines(new)).summary["new_version"] == versions


def test_rows_that_nobody_gives_back_are_known_by_their_hash(scene):
    """Too long to be fetched, or not to be read by this caller: what an apply has kept of them is enough."""
    here = scene().applied(stack())
    here.platform.read_blob = lambda *_, **__: None
    (change,) = [change for change in here.plan(stack(QUOTED)).changes if change.action.acts]
    assert (change.address, change.reason) == ("dataset/words", "cosmetic_change")
    assert change.data.before == change.data.after == len(ROWS.splitlines()) - 1
    kept = here.document(stack(), "dataset/words").spec["rows_hash"]
    here.applied(stack(QUOTED))
    assert here.document(stack(), "dataset/words").spec["rows_hash"] == kept
    assert here.change(stack(EDITED)).action is Action.NEW_VERSION


def test_rows_without_a_hash_that_nobody_gives_back_are_cautiously_taken_for_changed(scene):
    here = scene().applied(stack(format="parquet"))
    here.platform.read_blob = lambda *_, **__: None
    assert "rows_hash" not in here.document(stack(), "dataset/words").spec
    assert here.change(stack(QUOTED, format="parquet")).action is Action.NEW_VERSION


CELLS = st.text(st.sampled_from("a1 ,\"\n'é"), max_size=4)
TABLES = st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4)


def written(rows, columns, **dialect):
    """A CSV file of these rows, its columns in any order."""
    text = io.StringIO()
    writer = csv.writer(text, **dialect)
    writer.writerow([f"c{place}" for place in columns])
    writer.writerows([row[place] for place in columns] for row in rows)
    return file_with(text.getvalue().encode())


def file_with(data):
    return Blob(sha256_bytes(data), Path("nowhere"), len(data), data=data)


@settings(deadline=None)
@given(TABLES, TABLES, st.permutations(range(3)), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_equal_rows_have_one_hash_whatever_they_are_written_like_and_others_another(
    rows, others, columns, quoting
):
    first = rows_hash(written(rows, range(3)), "csv")
    assert first == rows_hash(written(rows, columns, quoting=quoting, lineterminator="\n"), "csv")
    assert (first == rows_hash(written(others, range(3)), "csv")) is (rows == others)


@pytest.mark.parametrize(
    "data", [b"a,b\n" + b"x" * (1 << 20), b"\xff", b'a\n"x'], ids=["a line", "letters", "quotes"]
)
def test_what_cannot_be_read_as_rows_has_no_hash(data):
    assert rows_hash(file_with(data), "csv") is None
    assert rows_hash(file_with(data), "jsonl") is None


def test_a_file_that_changes_while_it_is_read_has_no_hash(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    assert rows_hash(Blob(sha256_bytes(ROWS.encode()), tmp_path / "rows.csv", len(ROWS)), "csv") is not None
    assert rows_hash(Blob(sha256_bytes(b"before"), tmp_path / "rows.csv", len(ROWS)), "csv") is None
