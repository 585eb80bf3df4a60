"""Code that only reads differently trains nothing; code that behaves differently does, wherever it lies."""

import pytest
from stacks import REWARD, small

from arena_gitops.plan.cosmetic import same_behaviour
from arena_gitops.plan.model import Action

COMMENTED = "# what is it worth?\n" + REWARD.replace("return", "# the last word\n    return")
BEHAVES_LIKE = [
    ("x = 1\n", "x  =  1  # one\n"),
    ("def f():\n    return 1\n", 'def f():\n    """One."""\n\n    return 1\n'),
    ("x = (1,\n  2)\n", "x = (1, 2)\n"),
    ("x = 'a'\n", 'x = "a"\n'),
    ("x = 16\n", "x = 0x10\n"),
]
DIFFERS_FROM = [
    ("x = 'a b'\n", "x = 'a  b'\n"),
    ("x = 1\n", "x = 1.0\n"),
    ("x = 1\n", "x = True\n"),
    ("x = 1\n", "x = (\n"),
    ('def f():\n    """1."""\nx = f.__doc__\n', 'def f():\n    """2."""\nx = f.__doc__\n'),
    ("if a:\n    b\nc\n", "if a:\n    b\n    c\n"),
    ("x = 1\n", "(" * 5000 + ")" * 5000),
]


@pytest.mark.parametrize(("old", "new"), BEHAVES_LIKE)
def test_layout_comments_and_docstrings_are_no_behaviour(old, new):
    assert same_behaviour(old.encode(), new.encode())


@pytest.mark.parametrize(("old", "new"), DIFFERS_FROM)
def test_what_may_behave_differently_counts_as_different(old, new):
    assert not same_behaviour(old.encode(), new.encode())


def commented(source=COMMENTED, **experiment):
    return small().reward(source=source).experiment(**experiment).deployment()


def test_a_comment_in_a_reward_is_metadata_and_trains_nothing(scene):
    here = scene().applied(small())
    plan = here.plan(commented())
    (change,) = [change for change in plan.changes if change.action.acts]
    assert (change.address, change.action, change.reason) == (
        "reward/exact",
        Action.UPDATE,
        "cosmetic_change",
    )
    assert [field.cls.value for field in change.fields] == ["cosmetic"]
    assert plan.cost.max_new == plan.cost.unknown == 0


def test_once_applied_a_comment_is_no_change_any_more_and_no_new_version(scene):
    here = scene().applied(small(), commented())
    assert not here.plan(commented()).has_changes
    assert here.document(small(), "reward/exact").version == 1
    assert here.document(small()).version == 1


def test_a_change_of_training_after_a_comment_can_be_taken_back_for_nothing(scene):
    here = scene().applied(small(), commented(), commented(set={"algorithm.lr": 3e-5}))
    assert here.document(small()).version == 2
    assert here.change(commented()).action is Action.REUSE
    assert here.change(small()).action is Action.REUSE


def test_several_rounds_of_comments_still_lead_back_to_what_was_trained(scene):
    here = scene().applied(small(), commented(), commented(COMMENTED + "# more\n"))
    again = here.plan(commented(COMMENTED + "# and more\n"))
    assert [c.action for c in again.changes if c.action.acts] == [Action.UPDATE]
    assert here.plan(small()).summary["new_version"] == 0


def test_white_space_within_a_text_is_a_new_version(scene):
    source = REWARD + "SPACE = ' '\n"
    here = scene().applied(small().reward(source=source).experiment().deployment())
    other = source.replace("' '", "'  '")
    assert here.change(commented(other)).action is Action.NEW_VERSION


def test_another_function_of_the_same_code_is_a_new_version(scene):
    source = REWARD + "def other(question, answer, completion):\n    return 0.0\n"
    here = scene().applied(small().reward(source=source).experiment().deployment())
    stack = small().reward(source=source + "# more\n", function="other").experiment().deployment()
    assert here.change(stack).action is Action.NEW_VERSION


def test_a_platform_that_gives_nothing_back_is_cautiously_taken_for_changed(scene):
    here = scene().applied(small())
    here.platform.read_blob = lambda *_, **__: None
    change = here.change(commented(), "reward/exact")
    assert change.action is Action.NEW_VERSION
    assert "cannot be compared" in change.code[0].note


def test_a_child_of_an_experiment_that_is_kept_is_kept_too(scene):
    def stack(rows):
        return (
            small()
            .dataset(rows=rows)
            .dataset("mine")
            .experiment()
            .experiment("child", base="words-grpo", dataset="mine")
        )

    from stacks import ROWS

    here = scene().applied(stack(ROWS))
    plan = here.plan(stack(ROWS + "a,b\n"))
    assert plan.summary["stale"] == 1
    assert plan.summary["new_version"] == 1  # of the dataset
