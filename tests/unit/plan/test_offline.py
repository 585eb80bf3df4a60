"""A plan against another commit: real differences, and nothing claimed that only a platform knows."""

import pytest
from stacks import ROWS, Stack, small

from arena_gitops.app import plan_offline
from arena_gitops.plan.model import Plan
from arena_gitops.state import Policy


def offline(before, after, **options):
    base = None if before is None else before.state()
    return plan_offline(after.state(), base, target="prod", against="git:origin/main", **options)


def actions(plan):
    return {change.address: change.action.value for change in plan.changes if change.action.value != "noop"}


@pytest.mark.parametrize(
    ("changed", "action"),
    [
        ({"set": {"algorithm.lr": 3e-5}}, "new_version"),
        ({"set": {"training.max_steps": 2000}}, "resume"),
        ({"description": "newer"}, "update"),
        ({"rerun": 1}, "new_version"),
    ],
)
def test_changes_have_the_same_classes_as_with_a_platform(changed, action):
    assert actions(offline(small(), small(**changed))) == {"experiment/words-grpo": action}


def test_the_same_declarations_are_no_changes():
    plan = offline(small(), small())
    assert (plan.mode, plan.against, plan.has_changes) == ("offline", "git:origin/main", False)


def test_without_an_earlier_stack_everything_is_created():
    assert set(actions(offline(None, small())).values()) == {"create"}


def test_a_new_dataset_makes_its_experiments_stale_without_a_version_number():
    after = Stack().project().dataset(rows=ROWS + "a,b\n").reward().experiment().deployment()
    (stale,) = [change for change in offline(small(), after).changes if change.action == "stale"]
    assert stale.message.startswith("the version before was trained on earlier content of dataset/words")


def renamed(**experiment):
    after = Stack().project().dataset().reward().experiment("words-new", **experiment)
    return after.deployment(experiment="words-new")


def test_a_rename_is_a_move_here_too():
    assert actions(offline(small(), renamed())) == {
        "experiment/words-new": "move",
        "experiment/words-grpo": "retire",
        "deployment/words": "update",
    }


def test_equal_work_is_reused_and_no_run_id_is_invented():
    (change,) = [c for c in offline(small(), small().experiment("again")).changes if c.action == "reuse"]
    assert change.message == "experiment/words-grpo is the same work"


def test_a_rename_that_asks_for_more_continues_what_was_there():
    change = offline(small(), renamed(set={"training.max_steps": 2000})).changes[1]
    assert (change.address, change.reason) == ("experiment/words-new", "moved")
    assert (
        change.notes[-1]
        == "continues the run of experiment/words-grpo (completed, 1,000 steps asked for then)"
    )


def test_the_cost_is_unknown_not_zero():
    plan = offline(small(tier="large"), small(tier="large", set={"algorithm.lr": 3e-5}))
    assert (plan.cost.max_new, plan.cost.unknown) == (0.0, 1)


def test_the_policy_is_that_of_the_base():
    after = small(set={"algorithm.lr": 3e-5})
    before = small()
    before.policy = Policy(require_owner=True)
    assert not offline(before, after).applyable
    assert offline(small(), after).applyable


def test_an_offline_plan_has_another_id_than_a_plan_of_a_platform(scene):
    after = small(set={"algorithm.lr": 3e-5})
    assert offline(small(), after).plan_id != scene().applied(small()).plan(after).plan_id


def test_it_survives_the_round_trip():
    plan = offline(small(), small(rerun=1))
    assert Plan.from_json(plan.to_json()) == plan
