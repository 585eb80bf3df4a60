"""What several experiments of one plan are to train together is paid once, with the loosest of their budgets."""

from __future__ import annotations

import pytest
from stacks import Stack, small

from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.wire import Tier

TIERS = [
    Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2),
    Tier(id="large", num_cpus=8, ram_gb=32, credits_per_node_hour=5),
]
TWIN, WORDS = "experiment/twin", "experiment/words-grpo"


def paid(hours=6, tier="medium", **more):
    return {"tier": tier, "budget": {"max_runtime_s": hours * 3600.0}, **more}


def twins(first, second) -> Stack:
    return small(**first).experiment("twin", **second)


@pytest.fixture
def here(scene):
    return scene(tiers=TIERS)


def costs(here, stack, **options):
    """The ceiling of the plan, and of each experiment."""
    planned = here.plan(stack, **options)
    found = {c.address: c.cost.max for c in planned.changes if c.at.kind == "experiment"}
    return planned.cost.max_new, found


def test_equal_experiments_of_one_plan_cost_one_run_and_train_one(here):
    stack = twins(paid(), paid())
    assert costs(here, stack) == (12, {TWIN: 12, WORDS: 0})
    assert here.change(stack).cost.basis == f"shares the run of {TWIN}"
    here.applied(stack)
    assert here.run(stack) == here.document(stack, TWIN).run.run_id


def test_the_dearest_place_and_the_loosest_budget_are_what_it_can_cost(here):
    assert costs(here, twins(paid(1, "large"), paid(10))) == (50, {TWIN: 0, WORDS: 50})
    capped = paid(budget={"max_runtime_s": 36000.0, "max_credits": 4.0})
    assert costs(here, twins(paid(1), capped)) == (20, {TWIN: 20, WORDS: 0})


def test_one_without_an_end_or_a_price_leaves_the_sum_unknown_once(here):
    for other in (paid(budget={}), paid(tier=None) | {"tier": "nowhere"}):
        planned = here.plan(twins(paid(), other))
        assert (planned.cost.max_new, planned.cost.unknown) == (0, 1)


def test_other_work_and_a_rerun_are_paid_for_themselves(here):
    assert costs(here, twins(paid(), paid(set={"algorithm.lr": 3e-5})))[0] == 24
    assert costs(here, twins(paid(), paid(rerun=1)))[0] == 24


def test_who_is_planned_alone_pays_alone(here):
    assert costs(here, twins(paid(), paid()), scope=Scope(select=(f"+{WORDS}",))) == (12, {WORDS: 12})


def test_both_that_are_trained_anew_together_are_paid_once(scene):
    here = scene(tiers=TIERS, runs=RunScript.completes()).applied(twins(paid(), paid()))
    lr = {"algorithm.lr": 3e-5}
    assert costs(here, twins(paid(set=lr), paid(set=lr)))[0] == 12


def test_what_lengthens_a_run_that_exists_keeps_its_own_ceiling(scene):
    here = scene(tiers=TIERS, runs=RunScript.completes()).applied(small(**paid()))
    longer = paid(set={"training.max_steps": 2000})
    stack = small(**paid()).experiment("twin", **longer).experiment("triplet", **longer)
    assert costs(here, stack)[0] == 24
