"""What is no longer as it was approved, and what a part of a stack can be named by."""

import pytest
from stacks import Stack, small

from arena_gitops.app import require_same
from arena_gitops.errors import StaleError, UsageError
from arena_gitops.plan.compare import differences
from arena_gitops.plan.model import Action
from arena_gitops.plan.scope import NONE, Scope, changed_since
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report.diffs import comparison
from arena_gitops.spec.wire import Tier
from arena_gitops.state import Policy

OTHER = {"algorithm.lr": 3e-5}


def test_equal_plans_do_not_differ_whatever_they_cost(scene):
    here = scene().applied(small())
    cheap = here.plan(small(set=OTHER))
    priced = scene(tiers=[Tier(id="t", num_cpus=1, ram_gb=1, credits_per_node_hour=9)])
    dear = priced.applied(small()).plan(small(set=OTHER))
    assert differences(cheap, dear) == ()
    assert list(comparison(cheap, dear)) == [f"The same as plan {cheap.plan_id}."]


def test_what_was_added_removed_and_changed_is_named(scene):
    here = scene().applied(small())
    before = here.plan(small(set=OTHER).experiment("second", set={"training.pop_size": 3}))
    now = here.plan(small(set={"algorithm.lr": 5e-5}).experiment("third", set={"training.pop_size": 3}))
    found = {d.address: (d.op, d.why) for d in differences(before, now)}
    assert found["experiment/words-grpo"] == ("changed", "other content: manifest.algorithm.lr")
    assert found["experiment/third"] == ("added", "")
    assert found["experiment/second"] == ("removed", "")


def test_another_stored_state_is_the_reason_that_is_told(scene):
    here = scene().applied(small())
    before = here.plan(small(set=OTHER))
    here.applied(small(description="meanwhile"))
    (found,) = differences(before, here.plan(small(description="meanwhile", set=OTHER)))
    assert (found.op, found.why) == ("changed", "it has been changed on the platform meanwhile")


def test_a_check_that_fails_by_now_is_a_difference(scene):
    def planned(policy):
        return scene().plan(Stack(policy=policy).dataset().reward().experiment())

    (found,) = differences(planned(Policy()), planned(Policy(require_owner=True)))
    assert (found.address, found.op, found.new) == ("policy.require_owner", "added", "fails")


def test_a_plan_that_is_another_says_what_differs(scene):
    here = scene().applied(small())
    approved, now = here.plan(small(set=OTHER)), here.plan(small(set={"algorithm.lr": 5e-5}))
    with pytest.raises(
        StaleError, match=r"experiment/words-grpo: changed, other content: manifest\.algorithm\.lr"
    ):
        require_same(now, approved.plan_id, approved)


def test_what_happened_beside_an_apply_is_a_section_of_the_plan(scene):
    here = scene(runs=RunScript.stays_running(step=5)).applied(small())
    here.platform.stop_run(here.run(small()))
    (entry,) = here.plan(small()).drift
    assert (entry.address, entry.code) == ("experiment/words-grpo", "run_stopped")
    assert scene().applied(small()).plan(small()).drift == ()


def selected(scene, expression, stack):
    return {c.address for c in scene().plan(stack, scope=Scope(select=(expression,))).changes}


def labelled():
    return small(labels={"team": "rl"}).experiment("other", labels={"team": "ops", "nightly": ""})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tag:team", {"experiment/words-grpo", "experiment/other"}),
        ("tag:team=rl", {"experiment/words-grpo"}),
        ("tag:nightly", {"experiment/other"}),
        ("tag:team=rl+", {"experiment/words-grpo", "deployment/words"}),
        (NONE, set()),
    ],
)
def test_resources_are_selected_by_their_labels(scene, expression, expected):
    assert selected(scene, expression, labelled()) == expected


def test_a_label_that_nobody_has_is_a_usage_error(scene):
    with pytest.raises(UsageError, match="has the label 'team=none'"):
        selected(scene, "tag:team=none", labelled())


def test_what_changed_since_a_commit_is_named_with_its_signs():
    before, now = small().state(), small(set=OTHER).state()
    assert changed_since("git:HEAD", before, now) == ("deployment/words", "experiment/words-grpo")
    assert changed_since("+git:HEAD+", before, now)[0] == "+deployment/words+"
    assert changed_since("git:HEAD", before, small().state()) == (NONE,)
    assert len(changed_since("git:HEAD", None, now)) == len(now.resources)


def test_a_selection_of_nothing_changes_and_removes_nothing(scene):
    here = scene().applied(small())
    plan = here.plan(small(set=OTHER).without("deployment/words"), scope=Scope(select=(NONE,)))
    assert not plan.has_changes
    assert not plan.complete


def test_an_action_of_every_kind_has_a_severity():
    assert all(isinstance(action.severity, int) for action in Action)
