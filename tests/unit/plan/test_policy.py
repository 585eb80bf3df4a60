"""Budgets, places and estimates of a whole plan."""

import pytest
from stacks import Stack, small

from arena_gitops.plan.model import Action, CheckStatus
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import words
from arena_gitops.spec.job import RunState
from arena_gitops.spec.wire import Tier
from arena_gitops.state import Policy

MEDIUM = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.0)
HOUR = {"tier": "medium", "budget": {"max_runtime_s": 3600.0}}
PASS, WARN, FAIL = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL


def stack(policy, **experiment):
    return Stack(policy=policy).dataset().reward().experiment(**experiment)


def verdict(plan, name):
    return next((check.status for check in plan.checks if check.name == name), None)


@pytest.mark.parametrize(
    ("limit", "spent", "experiment", "status"),
    [
        (10.0, 0.0, HOUR, PASS),
        (10.0, 8.5, HOUR, FAIL),
        (10.0, 8.0, HOUR, PASS),
        (10.0, None, HOUR, WARN),
        (1.0, None, HOUR, WARN),
        (10.0, 1.0, {"tier": "medium"}, WARN),
        (10.0, 11.0, {"tier": "medium"}, FAIL),
        (None, 11.0, HOUR, None),
    ],
)
def test_a_month_has_a_budget(scene, limit, spent, experiment, status):
    here = scene(tiers=[MEDIUM], spent_this_month=spent)
    plan = here.plan(stack(Policy(max_credits_per_month=limit), **experiment))
    assert verdict(plan, "policy.max_credits_per_month") is status


def test_a_spent_month_does_not_stop_what_costs_nothing(scene):
    policy = Policy(max_credits_per_month=1.0)
    here = scene(tiers=[MEDIUM], spent_this_month=5.0).applied(stack(Policy(), **HOUR))
    plan = here.plan(stack(policy, description="newer", **HOUR))
    assert plan.applyable
    assert plan.has_changes


@pytest.mark.parametrize(("budget", "applyable"), [(2.0, True), (1.99, False), (None, True)])
def test_a_budget_of_the_command_line_blocks_what_can_cost_more(scene, budget, applyable):
    plan = scene(tiers=[MEDIUM]).plan(small(**HOUR), scope=Scope(budget=budget))
    assert plan.applyable is applyable


def test_a_budget_that_holds_is_no_other_plan(scene):
    here = scene(tiers=[MEDIUM])
    assert here.plan(small(**HOUR), scope=Scope(budget=9)).plan_id == here.plan(small(**HOUR)).plan_id


def test_too_many_nodes_are_named(scene):
    plan = scene().plan(stack(Policy(max_nodes=2), num_nodes=3))
    (check,) = [check for check in plan.checks if check.name == "policy.max_nodes"]
    assert (check.status, check.message) == (FAIL, "experiment/words-grpo asks for 3; 2 allowed")


@pytest.mark.parametrize(
    ("rule", "hf", "status"),
    [
        ("forbid", {"id": "a/b", "revision": None}, FAIL),
        ("warn", {"id": "a/b", "revision": None}, WARN),
        ("forbid", {"id": "a/b", "revision": "0" * 40}, PASS),
        ("forbid", None, PASS),
        ("allow", {"id": "a/b", "revision": None}, None),
    ],
)
def test_rows_of_the_hub_may_have_to_be_pinned(scene, rule, hf, status):
    plan = scene().plan(Stack(policy=Policy(floating_dataset=rule)).dataset(hf=hf))
    assert verdict(plan, "policy.floating_dataset") is status


@pytest.mark.parametrize(
    ("rule", "model", "status"),
    [
        ("forbid", {"id": "a/b", "revision": None}, FAIL),
        ("warn", {"id": "a/b", "revision": None}, WARN),
        ("forbid", {"id": "a/b", "revision": "0" * 40}, PASS),
        ("forbid", {"id": "of-the-models-folder", "revision": None}, PASS),
        ("allow", {"id": "a/b", "revision": None}, None),
    ],
)
def test_base_models_of_the_hub_may_have_to_be_pinned(scene, rule, model, status):
    plan = scene().plan(stack(Policy(floating_model=rule), model=model))
    assert verdict(plan, "policy.floating_model") is status


@pytest.mark.parametrize(("region", "status"), [("eu", None), ("us", FAIL), (None, FAIL)])
def test_a_tier_that_is_elsewhere_or_nobody_knows_where_is_refused(scene, region, status):
    tier = MEDIUM.model_copy(update={"region": region})
    plan = scene(tiers=[tier]).plan(stack(Policy(), tier=tier.id, region="eu"))
    assert verdict(plan, "region") is status


def test_every_reason_is_told_at_once(scene):
    policy = Policy(1.0, ("small",), require_owner=True, max_nodes=1)
    plan = scene(tiers=[MEDIUM]).plan(stack(policy, num_nodes=2, **HOUR))
    failed = [check.name for check in plan.checks if check.status is FAIL]
    assert failed == [
        "policy.max_credits_per_pr",
        "policy.tiers",
        "policy.max_nodes",
        "policy.require_owner",
    ]


def test_without_history_nothing_is_estimated(scene):
    cost = scene(tiers=[MEDIUM]).change(small(**HOUR)).cost
    assert (cost.est, cost.est_seconds, cost.est_basis) == (None, None, "")


def test_an_estimate_comes_from_runs_of_the_same_class(scene):
    here = scene(tiers=[MEDIUM], runs=RunScript.completes(step_s=1.8)).applied(small(**HOUR))
    change = here.change(small(set={"algorithm.lr": 3e-5}, **HOUR))
    assert (change.cost.est, change.cost.est_seconds, change.cost.max) == (1.0, 1800.0, 2.0)
    assert change.cost.est_basis == "history: 1 run of the same class, 1.8 s per step"
    assert "; probably 1 credit, 30m (history" in words.cost_line(change)
    assert here.plan(small(set={"algorithm.lr": 3e-5}, **HOUR)).cost.est_new == 1.0


@pytest.mark.parametrize(
    "other", [{"set": {"training.pop_size": 4}}, {"set": {"algorithm.group_size": 4}}, {"num_nodes": 2}]
)
def test_runs_of_another_class_say_nothing(scene, other):
    here = scene(tiers=[MEDIUM], runs=RunScript.completes(step_s=1.8)).applied(small(**HOUR))
    change = here.change(small(**HOUR).experiment("other", **HOUR, **other), "experiment/other")
    assert change.cost.est is None


def test_a_resumed_run_is_estimated_by_what_is_left(scene):
    here = scene(tiers=[MEDIUM], runs=RunScript.completes(step_s=1.8)).applied(small(**HOUR))
    change = here.change(small(set={"training.max_steps": 1500}, **HOUR))
    assert (change.action, change.cost.est_seconds) == (Action.RESUME, 900.0)


def test_an_estimate_is_never_more_than_the_ceiling(scene):
    here = scene(tiers=[MEDIUM], runs=RunScript.completes(step_s=18.0)).applied(small(**HOUR))
    change = here.change(small(set={"algorithm.lr": 3e-5}, **HOUR))
    assert (change.cost.est, change.cost.est_seconds) == (2.0, 3600.0)


def test_a_total_is_estimated_only_when_every_part_is(scene):
    here = scene(tiers=[MEDIUM], runs=RunScript(RunState.COMPLETED, step_s=1.8, checkpoint=True))
    here.applied(small(**HOUR))
    both = small(set={"algorithm.lr": 3e-5}, **HOUR).experiment(
        "unlike", set={"training.pop_size": 5}, **HOUR
    )
    assert here.plan(both).cost.est_new is None


@pytest.mark.parametrize(
    ("reward", "policy", "network", "secrets"),
    [
        ({"network": "full"}, Policy(), None, None),
        ({"network": "full"}, Policy(reward_network="warn"), WARN, None),
        ({"network": "full"}, Policy(reward_network="forbid"), FAIL, None),
        ({"network": "none"}, Policy(reward_network="forbid"), PASS, None),
        ({"secrets": ["A", "B"]}, Policy(reward_secrets=("A", "B", "C")), None, PASS),
        ({"secrets": ["A", "B"]}, Policy(reward_secrets=("A",)), None, FAIL),
        ({"secrets": ["A"]}, Policy(reward_secrets=()), None, FAIL),
        ({}, Policy(reward_secrets=()), None, PASS),
    ],
)
def test_what_rewards_may_do_is_policy(scene, reward, policy, network, secrets):
    planned = scene().plan(Stack(policy=policy).dataset().reward(**reward))
    assert (verdict(planned, "policy.reward_network"), verdict(planned, "policy.reward_secrets")) == (
        network,
        secrets,
    )
