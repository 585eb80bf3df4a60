"""How long `--wait` waits, and what ends it."""

import pytest
from stacks import small

from arena_gitops.app import wait
from arena_gitops.apply.events import Progressed
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.errors import CheckFailedError, PartialApplyError, WaitTimeoutError
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import AliasChoice

COMPLETE = Patience(Until.COMPLETE, timeout_s=10.0, poll_s=1.0)


def applied(scene, stack=None, **platform):
    here = scene(**platform)
    stack = stack or small()
    planned = here.plan(stack)
    here.apply(stack)
    return here, planned


def becomes(here, script):
    return lambda: here.platform.play("r_0001", script)


@pytest.mark.parametrize("until", [Until.NONE, Until.SUBMITTED])
def test_there_is_nothing_to_wait_for_once_all_is_submitted(scene, until):
    here, planned = applied(scene, runs=RunScript.stays_queued())
    assert wait(here.world, planned, Patience(until)) is None
    assert here.clock.time == 0


def test_running_waits_for_the_start(scene):
    here, planned = applied(scene, runs=RunScript.stays_queued())
    here.clock.meanwhile = [becomes(here, RunScript.stays_running(step=1))]
    wait(here.world, planned, Patience(Until.RUNNING))
    assert here.clock.time == 1.0


def test_complete_waits_for_the_end_and_for_the_deployment(scene):
    here, planned = applied(scene, runs=RunScript.stays_queued())
    here.clock.meanwhile = [
        becomes(here, RunScript.stays_running(step=1)),
        becomes(here, RunScript.stays_running(step=2)),
        becomes(here, RunScript.completes()),
    ]
    observed = wait(here.world, planned, COMPLETE)
    assert here.clock.time == 3.0
    assert observed.resources[Address("deployment", "words")].deployment.state == "serving"
    assert [event.runs[0].step for event in here.seen(Progressed)] == [0, 1, 2, 1000]


def test_a_deployment_that_still_serves_the_old_run_is_waited_for(scene):
    here, _ = applied(scene)
    stack = small(set={"algorithm.lr": 3e-5})
    here.platform._ledger.script = RunScript.stays_queued()
    planned = here.plan(stack)
    here.apply(stack)
    with pytest.raises(WaitTimeoutError, match="serves step_1000/m0 of r_0001, not yet the best of r_0002"):
        wait(here.world, planned, COMPLETE)
    here.clock.meanwhile = [lambda: here.platform.play("r_0002", RunScript.completes())]
    assert wait(here.world, planned, COMPLETE) is not None


def test_a_failed_run_ends_the_wait(scene):
    here, planned = applied(scene, runs=RunScript.stays_queued())
    here.clock.meanwhile = [becomes(here, RunScript.fails("ValueError: no number"))]
    with pytest.raises(CheckFailedError, match=r"words-grpo v1 \(user_code\): ValueError: no number"):
        wait(here.world, planned, COMPLETE)


def test_what_was_held_before_does_not_fail_another_apply(scene):
    here, _ = applied(scene, runs=RunScript.fails())
    stack = small().project(description="newer")
    planned = here.plan(stack)
    here.apply(stack)
    assert wait(here.world, planned, COMPLETE) is not None


@pytest.mark.parametrize(
    "deployment",
    [{"checkpoint": "@champion"}, {"gate": {"metric": "eval/reward", "min": 2.0, "min_delta": None}}],
    ids=["waits for people", "held by its gate"],
)
def test_a_deployment_that_stays_where_it_is_ends_the_wait(scene, deployment):
    here, planned = applied(scene, small().deployment(**deployment))
    wait(here.world, planned, COMPLETE)
    assert here.clock.time == 0


def test_a_stopped_run_ends_the_wait(scene):
    here, planned = applied(scene, runs=RunScript.stays_queued())
    here.clock.meanwhile = [lambda: here.platform.stop_run("r_0001")]
    wait(here.world, planned, COMPLETE)
    assert here.clock.time == 1.0


def test_time_runs_out_and_the_work_goes_on(scene):
    here, planned = applied(scene, runs=RunScript.stays_running(step=7))
    with pytest.raises(WaitTimeoutError, match="running, step 7 of 1,000") as timeout:
        wait(here.world, planned, COMPLETE)
    assert timeout.value.exit_code == 9
    assert here.clock.time == 10.0


def test_an_unchanged_plan_waits_for_what_is_still_in_flight(scene):
    here, _ = applied(scene, runs=RunScript.stays_running(step=7))
    here.clock.meanwhile = [becomes(here, RunScript.completes())]
    wait(here.world, here.plan(small()), COMPLETE)
    assert here.clock.time == 1.0


def test_a_rollout_that_failed_is_a_partial_apply(scene):
    here, planned = applied(scene)
    record = here.platform._ledger.find("main", Address("deployment", "words"))
    record.served = record.served.model_copy(update={"state": "failed", "message": "probe 503"})
    with pytest.raises(PartialApplyError) as failure:
        wait(here.world, planned, COMPLETE)
    assert failure.value.failed[0].message == "probe 503"


def test_a_refused_rollout_is_a_partial_apply_once(scene):
    """The server holds the deployment; the next apply, which changes nothing about it, does not fail again."""
    here, planned = applied(scene)
    record = here.platform._ledger.find("main", Address("deployment", "words"))
    told = {"state": "held", "refused": True, "message": "rollout of r2 failed: probe 503"}
    record.served = record.served.model_copy(update=told)
    with pytest.raises(PartialApplyError) as failure:
        wait(here.world, planned, COMPLETE)
    assert failure.value.failed[0].message == told["message"]
    again = here.plan(small())
    assert [change.action for change in again.changes] == ["held"]
    assert wait(here.world, again, COMPLETE) is not None


def test_a_choice_that_was_applied_is_waited_for_until_it_serves(scene):
    stack = small().deployment(checkpoint="@champion")
    here, planned = applied(scene, stack)
    record = here.platform._ledger.find("main", Address("deployment", "words"))
    digest = "sha256:" + "2" * 64
    choice = AliasChoice(alias="champion", digest=digest, applied=True)
    serving = record.served.model_copy(update={"state": "serving", "choice": choice, "digest": digest})
    record.served = serving.model_copy(update={"digest": "sha256:" + "1" * 64})
    here.clock.meanwhile = [lambda: setattr(record, "served", serving)]
    wait(here.world, planned, COMPLETE)
    assert here.clock.time == 1.0


@pytest.mark.parametrize("state", ["loading", "probing"])
def test_a_rollout_is_waited_for(scene, state):
    here, planned = applied(scene)
    record = here.platform._ledger.find("main", Address("deployment", "words"))
    serving = record.served
    record.served = serving.model_copy(update={"state": state, "message": "nearly"})
    here.clock.meanwhile = [lambda: setattr(record, "served", serving)]
    wait(here.world, planned, COMPLETE)
    assert here.clock.time == 1.0


def test_a_better_checkpoint_of_the_same_run_is_waited_for(scene):
    here, planned = applied(scene)
    record = here.platform._ledger.find("main", Address("deployment", "words"))
    serving = record.served
    record.served = serving.model_copy(update={"digest": "sha256:" + "0" * 64})
    here.clock.meanwhile = [lambda: setattr(record, "served", serving)]
    wait(here.world, planned, COMPLETE)
    assert here.clock.time == 1.0
