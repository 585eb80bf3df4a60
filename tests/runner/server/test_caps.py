"""Fewer steps for a run at work: its worker is told with its next report, and the run ends there as a complete one."""

import pytest

from arena_gitops.spec.job import Finished, ResumeState, ResumeStateSaved, RunState, Started
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ClaimRequest, EventBatch
from arena_runner.server.services import jobs, resources, runs
from arena_runner.server.services.resources import Put


@pytest.fixture
def put(world, build):
    kept = {}

    def put(steps, name="exp", **training):
        body = build.experiment(name, steps=steps)
        manifest = {**body.spec["manifest"], "training": {"max_steps": steps, **training}}
        body = body.model_copy(update={"spec": {**body.spec, "manifest": manifest}})
        kept[name] = resources.put(world, Put(Address("experiment", name), body, kept.get(name)))
        kept[name], document = kept[name].etag, kept[name]
        return document

    return put


def claim(world):
    return jobs.claim(world, ClaimRequest(worker_id="w", tier="local"))


def report(world, claimed, *events):
    job = claimed.job
    return jobs.report(world, job.run_id, job.segment, EventBatch(fence=claimed.fence, events=events))


def started():
    more = {"rows_in_flight": 1, "tokens_per_backward": 1, "versions": {}, "model": None}
    return Started(seq=1, device="cpu", dtype="float32", threads=1, members=1, max_steps=1000, **more)


def completed(seq=2):
    return Finished(seq=seq, state=RunState.COMPLETED)


def status(world, run_id):
    with world.store.read() as session:
        return runs.status(session, world, run_id)


def test_the_worker_is_told_and_the_run_completes_at_less(world, put):
    run_id = put(1000).run.run_id
    claimed = claim(world)
    assert report(world, claimed, started()).max_steps == 1000
    assert put(400).run.max_steps == 400
    told = report(world, claimed)
    assert (told.max_steps, told.directive) == (400, "continue")
    report(world, claimed, completed())
    assert (status(world, run_id).state, status(world, run_id).message) == (RunState.COMPLETED, "")


def test_raised_again_before_it_has_ended_it_ends_where_it_was_told_and_goes_on_in_another_segment(
    world, put
):
    run_id = put(1000).run.run_id
    claimed = claim(world)
    report(world, claimed, started())
    put(400)
    report(world, claimed)
    put(2000)
    assert report(world, claimed).max_steps == 400
    digest = world.blobs.put(b"state")
    state = ResumeStateSaved(seq=2, state=ResumeState(iteration=1, files={"a": digest}))
    report(world, claimed, state, completed(3))
    assert status(world, run_id).state == RunState.QUEUED
    assert claim(world).job.manifest["training"]["max_steps"] == 2000


def test_raised_before_the_worker_has_heard_of_less_nothing_has_happened(world, put):
    put(1000)
    claimed = claim(world)
    report(world, claimed, started())
    put(400)
    put(1000)
    assert report(world, claimed).max_steps == 1000


def test_a_run_that_another_experiment_shares_is_not_capped(world, put):
    run_id = put(1000).run.run_id
    assert put(1000, "twin").run.run_id == run_id
    claimed = claim(world)
    report(world, claimed, started())
    assert put(400).run.max_steps == 1000
    assert report(world, claimed).max_steps == 1000


def test_where_epochs_count_steps_are_no_limit(world, put):
    put(1000, num_epochs=3)
    assert report(world, claim(world), started()).max_steps is None
