"""A dataset whose file is only written differently is the same rows: nothing is stale, nothing is trained anew."""

import pytest
from stacks import ROWS, small

from arena_gitops.plan.model import Action

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


def test_a_platform_that_gives_no_rows_back_is_cautiously_taken_for_changed(scene):
    here = scene().applied(stack())
    here.platform.read_blob = lambda *_, **__: None
    assert here.change(stack(QUOTED)).action is Action.NEW_VERSION
