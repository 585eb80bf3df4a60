"""Paths of what differs, and that a number is not a truth value."""

from arena_gitops.plan.diff import Difference, Op, diff, leaves, patch


def test_equal_values_do_not_differ():
    value = {"a": {"b": [1, 2.0, None]}}
    assert diff(value, {"a": {"b": (1.0, 2, None)}}) == ()


def test_a_path_leads_to_each_difference():
    old = {"same": 1, "gone": 1, "inner": {"lr": 1e-5}}
    new = {"same": 1, "inner": {"lr": 3e-5}, "new": {"x": 1}}
    assert diff(old, new) == (
        Difference(("gone",), Op.REMOVE, old=1),
        Difference(("inner", "lr"), Op.REPLACE, 1e-5, 3e-5),
        Difference(("new",), Op.ADD, new={"x": 1}),
    )


def test_true_is_not_one_at_any_depth():
    assert len(diff({"a": 1}, {"a": True})) == 1
    assert len(diff({"a": [{"b": 0}]}, {"a": [{"b": False}]})) == 1


def test_lists_are_one_value():
    (found,) = diff({"a": [1, 2]}, {"a": [1, 2, 3]})
    assert (found.dotted, found.old, found.new) == ("a", [1, 2], [1, 2, 3])


def test_a_value_can_be_replaced_as_a_whole():
    assert patch(1, diff(1, {"a": 2})) == {"a": 2}


def test_patching_leaves_the_original_alone():
    old = {"a": {"b": 1}}
    assert patch(old, diff(old, {"a": {"b": 2}})) == {"a": {"b": 2}}
    assert old == {"a": {"b": 1}}


def test_added_and_removed_mappings_come_apart_into_fields():
    added = Difference(("budget",), Op.ADD, new={"max_runtime_s": 60, "more": {}})
    removed = Difference(("labels",), Op.REMOVE, old={"team": "rl"})
    assert [leaf.dotted for leaf in leaves(added)] == ["budget.max_runtime_s", "budget.more"]
    assert [(leaf.dotted, leaf.old) for leaf in leaves(removed)] == [("labels.team", "rl")]
