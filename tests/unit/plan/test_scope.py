"""A part of a stack, and work that is asked for once more."""

import pytest
from stacks import REWARD, ROWS, Stack, small

from arena_gitops.app import Consent, apply
from arena_gitops.errors import UsageError
from arena_gitops.plan.model import Plan
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.scripted import RunScript

EXPERIMENT = "experiment/words-grpo"


def family(**experiment):
    """A chain: two experiments, the second starts from the first; both served."""
    stack = Stack().dataset().reward().experiment("first", **experiment).experiment("second", base="first")
    return stack.deployment("one", experiment="first").deployment("two", experiment="second")


def addresses(plan):
    return [change.address for change in plan.changes if change.action.acts]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("experiment/first", ["experiment/first"]),
        ("+experiment/first", ["dataset/words", "reward/exact", "experiment/first"]),
        (
            "experiment/first+",
            ["experiment/first", "experiment/second", "deployment/one", "deployment/two"],
        ),
        ("dataset/words", ["dataset/words"]),
    ],
)
def test_an_expression_chooses_a_part_of_the_stack(scene, expression, expected):
    plan = scene().plan(family(), scope=Scope(select=(expression,)))
    assert addresses(plan) == expected
    assert not plan.complete


def test_expressions_add_up(scene):
    plan = scene().plan(family(), scope=Scope(select=("dataset/words", "reward/exact")))
    assert addresses(plan) == ["dataset/words", "reward/exact"]


def test_a_part_of_a_stack_removes_nothing(scene):
    here = scene().applied(family())
    part = Stack().dataset().reward().experiment("first")
    assert addresses(here.plan(part)) == ["experiment/second", "deployment/one", "deployment/two"]
    assert addresses(here.plan(part, scope=Scope(select=("experiment/first+", "deployment/two")))) == []


def test_what_builds_on_something_to_be_made_is_not_started_without_it(scene):
    plan = scene().plan(family(), scope=Scope(select=("experiment/second",)))
    (change,) = plan.changes
    assert (change.action, change.reason) == ("blocked", "parent_not_selected")
    assert "--select +experiment/second" in change.message
    assert not plan.applyable


def test_an_expression_that_names_nothing_is_a_usage_error(scene):
    with pytest.raises(UsageError, match="did you mean 'experiment/first'"):
        scene().plan(family(), scope=Scope(select=("experiment/frist",)))


def test_a_part_can_be_applied_and_the_rest_later(scene):
    here, stack = scene(), family()
    plan = here.plan(stack, scope=Scope(select=("+experiment/first",)))
    apply(here.world, plan, stack.state(), Consent.APPROVED)
    assert addresses(here.plan(stack)) == ["experiment/second", "deployment/one", "deployment/two"]


@pytest.mark.parametrize(
    "runs", [RunScript.completes(), RunScript.fails(step=8)], ids=["completed", "failed"]
)
def test_a_raised_rerun_starts_a_run_anew_and_settles(scene, runs):
    here = scene(runs=runs).applied(small())
    before = here.run(small())
    change = here.change(small(rerun=1))
    assert (change.action, change.reason) == ("new_version", "rerun")
    here.applied(small(rerun=1))
    assert here.run(small()) != before
    assert here.document(small()).version == 2
    assert addresses(here.plan(small(rerun=1))) == []


def test_a_rerun_is_the_same_work_with_the_same_fingerprint(scene):
    change = scene().applied(small()).change(small(rerun=1))
    assert change.fingerprint.old == change.fingerprint.new


def test_a_rerun_of_a_running_run_is_an_interrupt(scene):
    here = scene(runs=RunScript.stays_running(step=8)).applied(small())
    assert here.change(small(rerun=1)).interrupts


def test_taking_the_line_out_of_the_file_starts_nothing(scene):
    here = scene().applied(small(), small(rerun=1))
    assert addresses(here.plan(small())) == []


def test_the_flag_starts_a_run_anew_without_an_edit_and_settles(scene):
    here, scope = scene().applied(small()), Scope(rerun=(EXPERIMENT,))
    before = here.run(small())
    plan = here.plan(small(), scope=scope)
    assert addresses(plan) == [EXPERIMENT]
    apply(here.world, plan, small().state(), Consent.APPROVED)
    assert here.run(small()) != before
    assert addresses(here.plan(small())) == []


def test_the_flag_counts_on_from_the_platform(scene):
    here, scope = scene().applied(small(rerun=1)), Scope(rerun=(EXPERIMENT,))
    for _ in range(2):
        apply(here.world, here.plan(small(rerun=1), scope=scope), small(rerun=1).state(), Consent.APPROVED)
    assert here.document(small()).spec["rerun"] == 3


def test_going_back_to_earlier_work_after_a_rerun_reuses_it(scene):
    here = scene().applied(small(), small(rerun=1), small(rerun=1, set={"algorithm.lr": 3e-5}))
    assert here.change(small(rerun=1)).action == "reuse"
    assert here.change(small()).action == "reuse"


def test_only_experiments_of_the_repository_can_be_asked_for_again(scene):
    with pytest.raises(UsageError, match="--rerun"):
        scene().plan(small(), scope=Scope(rerun=("dataset/words",)))


def test_stale_experiments_are_trained_again_on_request(scene):
    fresh = Stack().project().dataset(rows=ROWS + "a,b\n").reward().experiment().deployment()
    here, scope = scene().applied(small()), Scope(rerun_stale=("dataset/words",))
    assert here.change(fresh).action == "stale"
    plan = here.plan(fresh, scope=scope)
    assert {c.address: c.action for c in plan.changes if c.action.acts} == {
        "dataset/words": "new_version",
        EXPERIMENT: "new_version",
    }
    apply(here.world, plan, fresh.state(), Consent.APPROVED)
    assert here.plan(fresh).changes == ()


def test_another_dataset_does_not_wake_a_stale_experiment(scene):
    fresh = Stack().dataset(rows=ROWS + "a,b\n").dataset("other").reward(source=REWARD).experiment()
    here = scene().applied(Stack().dataset().dataset("other").reward().experiment())
    assert here.change(fresh, scope=Scope(rerun_stale=("dataset/other",))).action == "stale"


def test_what_was_asked_for_travels_in_the_plan_file(scene):
    scope = Scope(select=("+experiment/words-grpo",), rerun=(EXPERIMENT,))
    plan = scene().applied(small()).plan(small(), scope=scope)
    saved = Plan.from_json(plan.to_json())
    assert saved.scope == scope
    assert scene().applied(small()).plan(small(), scope=saved.scope).plan_id == plan.plan_id
