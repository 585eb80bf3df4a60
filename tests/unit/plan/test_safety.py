"""What may not happen, and that the plan says so by name."""

from dataclasses import replace

import pytest
from stacks import Stack, small

from arena_gitops.plan.model import Action, CheckStatus
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_gitops.state import Policy

EXPERIMENT = Address("experiment", "words-grpo")
MEDIUM = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=10)


def verdicts(plan):
    return {check.name: check.status for check in plan.checks}


def test_a_name_of_another_stack_is_blocked_and_its_owner_named(scene):
    here = scene().applied(replace(small(), name="owners"))
    change = here.change(small())
    assert (change.action, change.reason) == (Action.BLOCKED, "owned_by_another_stack")
    assert "owners" in change.message
    assert not here.plan(small()).applyable


def test_an_empty_repository_retires_nothing(scene):
    here = scene().applied(small())
    plan = here.plan(Stack())
    assert {change.reason for change in plan.changes} == {"empty_repository"}
    assert not plan.applyable
    allowed = here.plan(Stack(), allow=frozenset({"empty"}))
    assert allowed.applyable
    assert (allowed.summary["retire"], allowed.summary["destroy"]) == (4, 1)


def test_protection_survives_the_removal_of_the_file(scene):
    here = scene().applied(small(lifecycle={"protect": True}))
    change = here.change(small().without("experiment/words-grpo"))
    assert (change.action, change.reason) == (Action.BLOCKED, "protected")


@pytest.mark.parametrize(("namespace", "action"), [("staging", Action.BLOCKED), ("pr-7", Action.RETIRE)])
def test_what_is_protected_stays_in_every_namespace_but_that_of_a_pull_request(scene, namespace, action):
    stack = replace(small(lifecycle={"protect": True}), namespace=namespace)
    here = scene().applied(stack)
    assert here.change(stack.without("experiment/words-grpo")).action is action


def test_a_running_run_is_not_stopped_by_a_removed_file(scene):
    here = scene(runs=RunScript.stays_running(step=8)).applied(small())
    left = small().without("experiment/words-grpo")
    assert here.change(left).reason == "interrupt_not_allowed"
    allowed = here.change(left, allow=frozenset({"interrupt"}))
    assert (allowed.action, allowed.interrupts) == (Action.RETIRE, True)


def test_a_queued_run_may_be_retired(scene):
    here = scene(runs=RunScript.stays_queued()).applied(small())
    change = here.change(small().without("experiment/words-grpo"))
    assert (change.action, change.interrupts) == (Action.RETIRE, False)
    assert "queued" in change.message


def test_an_algorithm_without_a_room_is_named_with_those_that_have_one(scene):
    change = scene(algorithms=["SFT", "PPO"]).change(small())
    assert change.reason == "algorithm_without_room"
    assert "GRPO" in change.message
    assert "PPO, SFT" in change.message


def test_a_manifest_that_asks_for_what_has_no_room_is_refused_in_its_words(scene):
    stack = small()
    refused = replace(stack.resources[EXPERIMENT], refusals=("multi_frequency has no room yet",))
    stack.resources[EXPERIMENT] = refused
    change = scene().change(stack)
    assert (change.reason, change.message) == ("manifest_without_room", "multi_frequency has no room yet")


def test_a_held_run_of_such_an_algorithm_blocks_nothing(scene):
    here = scene().applied(small())
    here.platform._algorithms = ("SFT",)
    assert here.plan(small()).applyable


@pytest.mark.parametrize(("limit", "status"), [(5.0, CheckStatus.FAIL), (20.0, CheckStatus.PASS)])
def test_the_budget_of_a_pull_request(scene, limit, status):
    stack = small(tier="medium", budget={"max_runtime_s": 3600.0})
    stack.policy = Policy(max_credits_per_pr=limit)
    plan = scene(tiers=[MEDIUM]).plan(stack)
    assert verdicts(plan)["policy.max_credits_per_pr"] is status
    assert plan.applyable == (status is CheckStatus.PASS)


def test_an_unknown_ceiling_is_a_warning(scene):
    stack = small(tier="medium")
    stack.policy = Policy(max_credits_per_pr=5.0)
    plan = scene(tiers=[MEDIUM]).plan(stack)
    assert verdicts(plan)["policy.max_credits_per_pr"] is CheckStatus.WARN
    assert plan.applyable


def test_only_allowed_tiers_and_only_with_an_owner(scene):
    stack = small(tier="large")
    stack.policy = Policy(tiers=("medium",), require_owner=True)
    failed = verdicts(scene().plan(stack))
    assert failed == {"policy.tiers": CheckStatus.FAIL, "policy.require_owner": CheckStatus.FAIL}
    stack = small(tier="medium", owner="rl").deployment(tier="medium")
    stack.policy = Policy(tiers=("medium",), require_owner=True)
    assert set(verdicts(scene().plan(stack)).values()) == {CheckStatus.PASS}


def test_what_does_not_change_breaks_no_policy(scene):
    here = scene().applied(small())
    stack = small()
    stack.policy = Policy(tiers=("medium",), require_owner=True)
    assert here.plan(stack).applyable


def test_a_tier_the_platform_does_not_offer_is_a_warning(scene):
    plan = scene(tiers=[MEDIUM]).plan(small(tier="a100"))
    (check,) = plan.checks
    assert (check.name, check.status) == ("tier", CheckStatus.WARN)
    assert "a100" in check.message
    assert "medium" in check.message


def rewards(number):
    stack = Stack()
    for index in range(number):
        stack.reward(f"reward-{index}", source=f"def reward(q, a, c):\n    return {index}.0\n")
    return stack


@pytest.mark.parametrize(
    ("before", "after", "applyable"), [(10, 7, True), (10, 6, False), (9, 1, True)], ids=str
)
def test_removing_more_than_a_third_of_many_needs_to_be_asked_for(scene, before, after, applyable):
    here = scene().applied(rewards(before))
    planned = here.plan(rewards(after))
    assert planned.applyable is applyable
    assert [check.name for check in planned.checks if check.status == "fail"] == (
        [] if applyable else ["removals"]
    )
    assert here.plan(rewards(after), allow=frozenset({"removals"})).applyable
