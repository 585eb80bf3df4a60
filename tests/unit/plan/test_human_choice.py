"""What people decide about a deployment, as the plan shows it: aliases, rollbacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.apply.barrier import require_fresh
from arena_gitops.errors import StaleError
from arena_gitops.plan.build import build
from arena_gitops.plan.model import Action
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import AliasChoice, DeploymentStatus, Hold

WORDS = Address("deployment", "words")
OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64
CHOICE = AliasChoice(
    alias="champion", version="3", run_id="r_0001", run_version=1, checkpoint="step_500/m1", digest=NEW
)
SERVING = DeploymentStatus(
    state="serving", revision=4, run_id="r_0001", checkpoint="step_400/m0", digest=OLD, url="http://h/i/words"
)


@pytest.fixture
def seen(scene):
    """A stack whose deployment follows an alias, observed with the status a test gives it."""
    stack = small().deployment(checkpoint="@champion")
    here = scene().applied(stack)
    observed = here.platform.observe(stack.owner)

    def look(**status):
        deployment = SERVING.model_copy(update=status)
        document = observed.resources[WORDS].model_copy(update={"deployment": deployment})
        return replace(observed, resources={**observed.resources, WORDS: document})

    return stack, look


def change_of(seen, **status):
    stack, look = seen
    planned = build(stack.state(), look(**status), target="prod")
    return next((change for change in planned.changes if change.at == WORDS), None)


def test_a_moved_alias_is_a_promotion(seen):
    change = change_of(seen, choice=CHOICE)
    assert (change.action, change.reason, change.severity) == (Action.PROMOTE, "alias_moved", 6)
    assert change.message == (
        "@champion is version 3: step_500/m1 of r_0001 (v1); step_400/m0 of r_0001 serves"
    )
    assert change.preconditions.choice == NEW


def test_a_choice_that_was_applied_is_no_change(seen):
    assert change_of(seen, choice=CHOICE.model_copy(update={"applied": True})) is None


def test_an_alias_of_an_older_version_is_promoted_with_a_warning(seen):
    older = CHOICE.model_copy(update={"run_version": 2})
    assert "alias points to v2, repo is v1" in change_of(seen, choice=older).notes


def test_an_alias_that_nobody_has_set_is_pending_and_no_change(seen):
    stack, look = seen
    nothing = AliasChoice(alias="champion", message="waiting for alias 'champion' on model words-grpo")
    observed = look(state="pending", revision=0, choice=nothing)
    planned = build(stack.state(), observed, target="prod")
    change = next(c for c in planned.changes if c.at == WORDS)
    assert (change.action, change.message) == (Action.PENDING, nothing.message)
    assert not planned.has_changes


def test_an_unknown_alias_is_said_and_is_not_no_alias(seen):
    unknown = AliasChoice(alias="champion", known=False, message="alias 'champion' is unknown")
    change = change_of(seen, choice=unknown)
    assert (change.action, change.message) == (Action.NOOP, "alias 'champion' is unknown")


def test_a_rollback_is_held_in_sight_and_keeps_a_moved_alias_waiting(seen):
    hold = Hold(revision=3, wanted=4, by="eva", since=0.0)
    change = change_of(seen, state="held", hold=hold, choice=CHOICE)
    assert (change.action, change.reason) == (Action.HELD, "deployment_rolled_back")
    assert change.message.startswith("≠ held at r3, repo wants r4 (rolled back by eva)")


def test_the_plan_is_bound_to_the_version_that_was_chosen(seen):
    stack, look = seen
    planned = build(stack.state(), look(choice=CHOICE), target="prod")
    other = CHOICE.model_copy(update={"digest": OLD, "checkpoint": "step_400/m0"})
    assert build(stack.state(), look(choice=other), target="prod").plan_id != planned.plan_id
    require_fresh(planned, look(choice=CHOICE))
    with pytest.raises(StaleError, match="the alias that deployment/words follows points elsewhere by now"):
        require_fresh(planned, look(choice=other))
