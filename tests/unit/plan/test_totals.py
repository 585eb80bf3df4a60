"""Credits of a plan as a whole: what it stops, what is left, and how far what is declared grows."""

import json

import pytest
from stacks import Stack, small

from arena_gitops.app import plan_offline
from arena_gitops.plan.model import CheckStatus
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import text
from arena_gitops.spec.wire import Tier
from arena_gitops.state import Policy

MEDIUM = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.0)
HOUR = {"tier": "medium", "budget": {"max_runtime_s": 3600.0}}
LONGER = {"tier": "medium", "budget": {"max_runtime_s": 7200.0}}
RUNNING = RunScript.stays_running(step=320)
PASS, WARN, FAIL = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL


def stack(policy, **experiment):
    return Stack(policy=policy).dataset().reward().experiment(**experiment)


def verdict(plan, name):
    return next((check.status for check in plan.checks if check.name == name), None)


@pytest.fixture
def running(scene):
    return scene(tiers=[MEDIUM], runs=RUNNING).applied(small(**HOUR))


def test_a_run_that_is_stopped_leaves_what_it_could_still_have_cost(running):
    planned = running.plan(small(set={"algorithm.lr": 3e-5}, **HOUR))
    assert (planned.cost.running_saved, planned.cost.max_new) == (2.0, 2.0)
    assert "The runs it stops could still have cost up to 2 credits." in text.render(planned)


def test_what_a_stopped_run_has_spent_is_spent(scene):
    here = scene(tiers=[MEDIUM], runs=RunScript.stays_running(step=320)).applied(small(**HOUR))
    runs = here.platform._ledger.runs
    (run,) = runs.values()
    run.status = run.status.model_copy(update={"spent_s": 900.0})
    assert here.plan(small(set={"algorithm.lr": 3e-5}, **HOUR)).cost.running_saved == 1.5


def test_what_goes_on_elsewhere_or_for_somebody_else_saves_nothing(running, scene):
    moved = running.plan(small(**{**HOUR, "num_nodes": 2}), allow=frozenset({"interrupt"}))
    assert moved.cost.running_saved == 0.0
    twin = scene(tiers=[MEDIUM], runs=RUNNING).applied(small(**HOUR).experiment("twin", **HOUR))
    assert (
        twin.plan(small(set={"algorithm.lr": 3e-5}, **HOUR).experiment("twin", **HOUR)).cost.running_saved
        == 0
    )


def test_a_destruction_says_what_it_saves_and_leaves_nothing_declared(running):
    cost = running.plan(small(**HOUR), scope=Scope(destroy=True)).cost
    assert (cost.running_saved, cost.declared_before, cost.declared) == (2.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("balance", "experiment", "status"),
    [(None, HOUR, None), (2.0, HOUR, PASS), (1.9, HOUR, FAIL), (1.9, {"tier": "medium"}, WARN)],
)
def test_no_plan_may_cost_more_than_there_is(scene, balance, experiment, status):
    planned = scene(tiers=[MEDIUM], balance=balance).plan(small(**experiment))
    assert (verdict(planned, "balance"), planned.cost.balance) == (status, balance)
    assert planned.applyable is (status is not FAIL)


def test_an_empty_balance_does_not_stop_what_costs_nothing(scene):
    here = scene(tiers=[MEDIUM], balance=2.0).applied(small(**HOUR))
    here.platform._balance = 0.0
    assert here.plan(small(description="newer", **HOUR)).applyable


@pytest.mark.parametrize(
    ("policy", "name", "status"),
    [
        (Policy(max_credits_declared=4.0), "declared", PASS),
        (Policy(max_credits_declared=3.9), "declared", FAIL),
        (Policy(max_credits_increase=2.0), "increase", PASS),
        (Policy(max_credits_increase=1.9), "increase", FAIL),
        (Policy(max_credits_increase_percent=100.0), "increase_percent", PASS),
        (Policy(max_credits_increase_percent=99.0), "increase_percent", FAIL),
    ],
)
def test_what_is_declared_may_grow_only_so_far(scene, policy, name, status):
    here = scene(tiers=[MEDIUM]).applied(stack(Policy(), **HOUR))
    planned = here.plan(stack(policy, **LONGER))
    assert verdict(planned, f"policy.max_credits_{name}") is status
    assert planned.applyable is (status is PASS)
    assert (planned.cost.declared_before, planned.cost.declared) == (2.0, 4.0)
    assert "once: up to 2 → 4 credits (+2)" in text.render(planned)


def test_of_nothing_there_is_no_part_and_what_shrinks_is_allowed(scene):
    policy = Policy(max_credits_increase=0.0, max_credits_increase_percent=0.0)
    first = scene(tiers=[MEDIUM]).plan(stack(policy, **HOUR))
    assert verdict(first, "policy.max_credits_increase_percent") is None
    assert verdict(first, "policy.max_credits_increase") is FAIL
    here = scene(tiers=[MEDIUM]).applied(stack(Policy(), **LONGER))
    assert here.plan(stack(policy, **HOUR)).applyable


def test_what_is_not_known_is_neither_within_nor_beyond_a_limit(scene):
    planned = scene(tiers=[MEDIUM]).plan(stack(Policy(max_credits_declared=1.0), tier="medium"))
    assert verdict(planned, "policy.max_credits_declared") is WARN
    assert planned.cost.declared_unknown == 1


def test_a_part_of_a_stack_counts_for_itself(scene):
    both = small(**HOUR).experiment("other", **HOUR)
    here = scene(tiers=[MEDIUM]).applied(both)
    cost = here.plan(
        small(**LONGER).experiment("other", **LONGER), scope=Scope(select=("experiment/other",))
    ).cost
    assert (cost.declared_before, cost.declared) == (2.0, 4.0)


def test_a_field_says_what_the_platform_has_and_offline_nothing(scene):
    old, new = small(**HOUR), small(set={"algorithm.lr": 3e-5}, **HOUR)
    (field,) = scene(tiers=[MEDIUM]).applied(old).change(new).fields
    assert (field.old, field.remote, field.new, field.sensitive) == (1e-5, 1e-5, 3e-5, False)
    offline = plan_offline(new.state(), old.state(), target="prod", against="git:main")
    (field,) = offline.changes[0].fields
    assert (field.old, field.remote) == (1e-5, None)


def test_names_of_secrets_are_marked(scene):
    old = Stack().dataset().reward(secrets=["JUDGE_KEY"])
    new = Stack().dataset().reward(secrets=["JUDGE_KEY", "OTHER_KEY"])
    planned = scene().applied(old).plan(new)
    fields = [field for change in planned.changes for field in change.fields]
    assert [(field.path, field.sensitive) for field in fields] == [("secrets", True)]
    (written,) = json.loads(planned.to_json())["changes"][0]["fields"]
    assert written["sensitive"] is True
