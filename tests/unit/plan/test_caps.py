"""Fewer steps for a run at work: it ends there, and nothing is interrupted."""

import pytest
from stacks import small

from arena_gitops.plan.model import Action
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import text


def steps(number, **fields):
    return small(set={"training.max_steps": number}, **fields)


def running(scene, step=200, **platform):
    return scene(runs=RunScript.stays_running(step=step), **platform).applied(steps(1000))


@pytest.mark.parametrize(("wanted", "where"), [(400, "at 400 steps"), (100, "after its present iteration")])
def test_fewer_steps_cap_a_run_at_work(scene, wanted, where):
    here = running(scene)
    plan = here.plan(steps(wanted))
    change = here.change(steps(wanted))
    assert (change.action, change.reason, change.interrupts) == (Action.CAP, "budget_lowered", False)
    assert where in change.message
    assert change.cost is None
    assert change.preconditions.status == ("running",)
    assert "1 to cap" in text.render(plan)
    run = here.run(steps(1000))
    here.applied(steps(wanted))
    stored = here.document(steps(1000))
    assert (stored.version, stored.run.run_id, stored.run.max_steps) == (1, run, wanted)
    assert not here.plan(steps(wanted)).has_changes


def test_the_plan_of_a_cap_does_not_depend_on_how_far_the_run_is(scene):
    here = running(scene)
    before = here.plan(steps(400)).plan_id
    here.platform.play(here.run(steps(1000)), RunScript.stays_running(step=600))
    assert here.plan(steps(400)).plan_id == before


def test_a_capped_run_is_raised_again_like_any(scene):
    here = running(scene).applied(steps(400))
    raised = here.change(steps(2000))
    assert raised.action is Action.RESUME
    here.applied(steps(2000))
    assert here.document(steps(2000)).run.max_steps == 2000


def test_a_queued_run_is_only_given_fewer_steps(scene):
    here = scene(runs=RunScript.stays_queued()).applied(steps(1000))
    assert here.change(steps(400)).action is Action.UPDATE
    here.applied(steps(400))
    assert here.document(steps(400)).run.max_steps == 400


def test_what_others_share_is_not_capped_for_one(scene):
    def both(number):
        return steps(number).experiment("twin", set={"training.max_steps": 1000})

    here = scene(runs=RunScript.stays_running(step=200)).applied(both(1000))
    change = here.change(both(400))
    assert change.action is Action.NOOP
    assert any("experiment/twin" in note for note in change.notes)
    here.applied(both(400))
    assert here.document(both(400)).run.max_steps == 1000


def test_less_than_the_platform_gives_anyway_is_only_recorded_where_nothing_changes(scene):
    here = running(scene, max_steps=500)
    assert here.change(steps(600)).action is Action.UPDATE
    assert here.change(steps(300)).action is Action.CAP


def test_together_with_a_note_it_is_still_a_cap(scene):
    here = running(scene)
    assert here.change(steps(400, description="enough")).action is Action.CAP
