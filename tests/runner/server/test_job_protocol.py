"""Claims and reports: what a worker may say, and what a late, repeating or replaced worker is told."""

from dataclasses import replace

import pytest

from arena_gitops.spec.job import Finished, Log, ModelRef, ResumeState, ResumeStateSaved, RunState, Started
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ClaimRequest, EventBatch
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import jobs, resources, retries, runs
from arena_runner.server.settings import Limits, Models, Settings, TierFile, Workers

LEASE_S = Settings().worker.lease_s
MISSING = "sha256:" + "0" * 64


@pytest.fixture
def run_id(world, build):
    put = resources.Put(Address("experiment", "exp"), build.experiment(), None)
    return resources.put(world, put).run.run_id


@pytest.fixture
def claim(world, run_id):
    return lambda worker="w1": jobs.claim(world, ClaimRequest(worker_id=worker, tier="local"))


@pytest.fixture
def controller(world):
    return RunsController(world, LocalExecutor(world))


def started(seq=1):
    more = {"rows_in_flight": 1, "tokens_per_backward": 1, "versions": {}, "model": None}
    return Started(seq=seq, ts=0, device="cpu", dtype="float32", threads=1, members=2, max_steps=16, **more)


def said(seq):
    return Log(seq=seq, ts=0, level="info", message=f"line {seq}")


def status(world, run_id):
    with world.store.read() as session:
        return runs.status(session, world, run_id)


def report(world, claimed, *events):
    job = claimed.job
    return jobs.report(world, job.run_id, job.segment, EventBatch(fence=claimed.fence, events=events))


def test_a_claimed_run_is_nobody_elses(claim):
    assert claim().job.segment == 0
    assert claim("w2") is None


def test_a_claim_whose_answer_was_lost_can_be_asked_again(claim):
    assert claim() == claim()


def test_another_tiers_worker_gets_nothing(world, run_id):
    assert jobs.claim(world, ClaimRequest(worker_id="w", tier="a100")) is None


def test_while_the_server_stops_nothing_is_handed_out(world, claim):
    world.draining.set()
    assert claim() is None


def test_the_first_event_makes_a_run_running(world, claim, run_id):
    claimed = claim()
    assert status(world, run_id).state == RunState.VALIDATING
    report(world, claimed, started())
    assert status(world, run_id).state == RunState.RUNNING


def test_a_repeated_batch_changes_nothing(world, claim, run_id):
    claimed = claim()
    batches = [report(world, claimed, started(), said(2)) for _ in range(2)]
    assert [b.accepted_seq for b in batches] == [2, 2]
    with world.store.read() as session:
        assert runs.get(session, run_id).state.last_index == 2


def test_after_a_gap_the_receipt_says_where_to_go_on(world, claim):
    claimed = claim()
    assert report(world, claimed, started(), said(2), said(4)).accepted_seq == 2
    assert report(world, claimed, said(3), said(4)).accepted_seq == 4


def test_an_event_that_names_a_blob_nobody_sent_is_refused(world, claim):
    claimed = claim()
    state = ResumeStateSaved(seq=2, ts=0, state=ResumeState(iteration=1, files={"a": MISSING}))
    with pytest.raises(RefusedError) as refused:
        report(world, claimed, started(), state)
    assert refused.value.code == "blob-missing"


def test_a_silent_worker_is_replaced_and_refused_when_it_speaks_again(world, claim, controller, run_id):
    late = claim()
    report(world, late, started())
    world.clock.now += LEASE_S + 1
    controller.reconcile()
    assert status(world, run_id).state == RunState.QUEUED
    with pytest.raises(RefusedError) as refused:
        report(world, late, said(2))
    assert (refused.value.status, refused.value.code) == (409, "fenced")
    new = claim("w2")
    assert (new.job.segment, new.fence > late.fence) == (1, True)


def test_heartbeats_keep_a_run(world, claim, controller, run_id):
    claimed = claim()
    for _ in range(5):
        world.clock.now += LEASE_S * 0.8
        report(world, claimed)
        controller.reconcile()
    assert status(world, run_id).state == RunState.VALIDATING


def test_a_run_that_never_gets_on_is_given_up_and_says_so(world, claim, controller, run_id):
    for attempt in range(retries.MAX_RESTARTS + 1):
        assert claim(f"w{attempt}") is not None
        world.clock.now += LEASE_S + 1
        controller.reconcile()
    ended = status(world, run_id)
    assert (ended.state, ended.reason) == (RunState.FAILED, "infra")
    assert ended.message == "its worker w3 fell silent; gave up after 3 restarts without progress"


def test_progress_between_two_losses_starts_the_count_again(world, claim, controller, run_id):
    digest = world.blobs.put(b"state")
    for attempt in range(retries.MAX_RESTARTS + 3):
        claimed = claim(f"w{attempt}")
        state = ResumeState(iteration=attempt + 1, files={"state": digest})
        report(world, claimed, started(), ResumeStateSaved(seq=2, ts=0, state=state))
        world.clock.now += LEASE_S + 1
        controller.reconcile()
    assert status(world, run_id).state == RunState.QUEUED


def test_the_next_segment_begins_at_the_last_resume_state(world, claim, controller):
    digest = world.blobs.put(b"state")
    state = ResumeState(iteration=7, files={"state": digest})
    report(world, claim(), started(), ResumeStateSaved(seq=2, ts=0, state=state))
    world.clock.now += LEASE_S + 1
    controller.reconcile()
    assert claim("w2").job.resume == state


def test_a_stop_reaches_the_worker_with_its_next_report(world, claim, run_id):
    claimed = claim()
    with world.store.write() as session:
        runs.stop(runs.get(session, run_id), "user", 0.0)
    assert report(world, claimed, started()).directive == "stop"
    receipt = report(world, claimed, Finished(seq=2, ts=0, state=RunState.STOPPED))
    ended = status(world, run_id)
    assert (receipt.directive, ended.state, ended.message) == ("stop", RunState.STOPPED, "stopped by a user")


def test_the_last_batch_may_be_repeated_after_the_end(world, claim):
    claimed = claim()
    last = (started(), Finished(seq=2, ts=0, state=RunState.COMPLETED))
    assert [report(world, claimed, *last).accepted_seq for _ in range(2)] == [2, 2]


def test_a_fault_of_the_users_code_is_not_tried_again(world, claim, run_id):
    message = "reward.py:12: KeyError: 'answer'"
    fault = Finished(seq=2, ts=0, state=RunState.FAILED, reason="user_code", message=message)
    report(world, claim(), started(), fault)
    ended = status(world, run_id)
    assert (ended.state, ended.reason, ended.message) == (RunState.FAILED, "user_code", message)


def test_an_infrastructure_fault_is_tried_again(world, claim, run_id):
    fault = Finished(seq=2, ts=0, state=RunState.FAILED, reason="infra", message="the disk is full")
    report(world, claim(), started(), fault)
    again = status(world, run_id)
    assert again.state == RunState.QUEUED
    assert again.message == "the disk is full; continues from the beginning (restart 1 of 3)"


def test_a_run_that_has_spent_its_time_is_stopped_as_over_budget(world, build, claim, controller, run_id):
    body = build.experiment()
    body = body.model_copy(update={"spec": {**body.spec, "budget": {"max_runtime_s": 30}}})
    with world.store.read() as session:
        etag = resources.find(session, Address("experiment", "exp"), "main").etag
    resources.put(world, resources.Put(Address("experiment", "exp"), body, etag))
    claimed = claim()
    assert claimed.job.limits.max_runtime_s == 30
    report(world, claimed, started())
    world.clock.now += 31
    controller.reconcile()
    assert report(world, claimed).directive == "stop"
    report(world, claimed, Finished(seq=2, ts=0, state=RunState.STOPPED))
    ended = status(world, run_id)
    assert (ended.state, ended.reason) == (RunState.FAILED, "budget")


def test_server_settings_change_the_job_not_the_experiment(world, run_id):
    small = Settings(limits=Limits(max_steps=8), models=Models(map={"tiny": "tinier"}))
    small_world = replace(world, settings=small)
    claimed = jobs.claim(small_world, ClaimRequest(worker_id="w", tier="local"))
    assert (claimed.job.limits.max_steps, claimed.job.model.id) == (8, "tinier")
    report(small_world, claimed, started(), Finished(seq=2, ts=0, state=RunState.COMPLETED))
    ended = status(small_world, run_id)
    assert (ended.state, ended.message) == (RunState.COMPLETED, "capped at 8 of 16")


def test_the_first_workers_model_revision_is_kept_for_every_later_segment(world, claim, controller):
    revision = "c" * 40
    first = started().model_copy(update={"model": ModelRef(id="tiny", revision=revision)})
    report(world, claim(), first)
    world.clock.now += LEASE_S + 1
    controller.reconcile()
    assert claim("w2").job.model == ModelRef(id="tiny", revision=revision)


def test_a_worker_program_that_does_not_exist_fails_the_run_in_words(world, run_id):
    tier = world.tiers.tiers[0].model_copy(update={"slots": 1})
    broken = Settings(worker=Workers(command=("/no/such/program",)))
    able = replace(world, settings=broken, tiers=TierFile(tiers=(tier,)))
    controller = RunsController(able, LocalExecutor(able))
    for _ in range(retries.MAX_RESTARTS + 1):
        controller.reconcile()
    ended = status(able, run_id)
    assert (ended.state, ended.reason) == (RunState.FAILED, "infra")
    assert "a worker cannot be started" in ended.message
    assert "/no/such/program" in ended.message
