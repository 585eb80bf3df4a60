"""Who is next, what a run waits for, what it may cost, and what is tried again without a person."""

from dataclasses import replace

import pytest
from pool import Pool, finished, pull_tier, said, started
from starlette.testclient import TestClient

from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_runner.server.app import create_app
from arena_runner.server.controllers.runs import OVERRUN_S, RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.services import queue, resources, runs
from arena_runner.server.services.queue import Load
from arena_runner.server.settings import TierFile, Workers
from arena_runner.serving.policy_protocol import POLICIES


def make(world, *tiers):
    return replace(world, tiers=TierFile(tiers=tiers))


@pytest.fixture
def pool(world):
    """Tier gpu costs a credit in 100 seconds."""
    made = make(world, pull_tier(), pull_tier("narrow", slots=1))
    with TestClient(create_app(made)) as http:
        yield Pool(made, http)


@pytest.fixture
def controller(pool):
    return RunsController(pool.world, LocalExecutor(pool.world))


def submit(pool, build, name, **spec):
    return pool.submit(build.experiment(name, seed=name), name, **spec)


def change(pool, build, name, *, steps=16, **spec):
    """Another apply of the same experiment."""
    with pool.world.store.read() as session:
        etag = resources.find(session, Address("experiment", name), "main").etag
    body = build.experiment(name, seed=name, steps=steps)
    body = body.model_copy(update={"spec": {**body.spec, "tier": "gpu", **spec}})
    return resources.put(pool.world, resources.Put(Address("experiment", name), body, etag)).run


def stop(pool, run_id):
    with pool.world.store.write() as session:
        runs.stop(runs.get(session, run_id), "user", pool.world.clock())


def test_within_a_tier_the_oldest_run_is_next(pool, build):
    ids = [submit(pool, build, name) for name in ("c", "a", "b")]
    worker, taken = pool.worker(), []
    for _ in ids:
        taken.append(worker.take()["run_id"])
        worker.report(started(), finished())
    assert taken == ids


def test_a_higher_priority_is_before_older_runs_and_may_be_given_while_it_waits(pool, build):
    ids = {
        name: submit(pool, build, name, priority=p) for name, p in (("a", 0), ("b", -5), ("c", 7), ("d", 0))
    }
    change(pool, build, "d", priority=3)
    worker, taken = pool.worker(), []
    for _ in ids:
        taken.append(worker.take()["run_id"])
        worker.report(started(), finished())
    assert taken == [ids[name] for name in "cdab"]


def test_a_run_that_was_queued_again_keeps_its_place(pool, build):
    first, second = (submit(pool, build, name) for name in ("one", "two"))
    worker = pool.worker()
    worker.take()
    worker.hand_back()
    assert [worker.take()["run_id"], pool.worker("w2").take()["run_id"]] == [first, second]


def test_a_cancelled_run_leaves_the_queue_at_once(pool, build):
    first, second = (submit(pool, build, name) for name in ("one", "two"))
    stop(pool, first)
    assert pool.status(first).state == RunState.STOPPED
    worker = pool.worker()
    assert worker.take()["run_id"] == second
    worker.report(finished())
    assert worker.take() is None


def test_a_run_told_to_stop_saves_and_stops_and_is_not_taken_again(pool, build):
    run_id = submit(pool, build, "one")
    worker = pool.worker()
    worker.take()
    stop(pool, run_id)
    assert worker.report(started()).json()["directive"] == "stop"
    worker.save(4)
    worker.report(finished("stopped"))
    assert (pool.status(run_id).state, pool.status(run_id).message) == (RunState.STOPPED, "stopped by a user")
    assert worker.take() is None


def test_more_steps_continue_the_same_run_on_any_worker(pool, build):
    run_id = submit(pool, build, "one")
    first = pool.worker("w1")
    first.take()
    first.report(started())
    first.save(2)
    first.report(finished())
    assert change(pool, build, "one", steps=32).run_id == run_id
    job = pool.worker("w2").take()
    assert (job["run_id"], job["segment"], job["resume"]["iteration"]) == (run_id, 1, 2)
    assert job["manifest"]["training"]["max_steps"] == 32


def test_a_tier_that_pulls_does_as_many_jobs_as_it_has_workers_unless_it_says_less(pool, build):
    for tier in ("gpu", "narrow"):
        for n in range(2):
            submit(pool, build, f"{tier}{n}", tier=tier)
    assert all(pool.worker(f"g{n}").take() for n in range(2))
    assert pool.worker("n0", "narrow").take() is not None
    second = pool.worker("n1", "narrow")
    assert second.take() is None
    pool.workers[2].report(finished())
    assert second.take() is not None


def test_a_waiting_run_says_what_it_waits_for(pool, build, controller):
    alone = submit(pool, build, "alone")
    first, second = (submit(pool, build, name, tier="narrow") for name in ("one", "two"))
    controller.reconcile()
    assert pool.status(alone).message == "waits for a worker of tier gpu; none was heard of lately"
    pool.worker("g")
    worker = pool.worker("n", "narrow")
    controller.reconcile()
    assert pool.status(alone).message == "waiting for a worker"
    assert worker.take()["run_id"] == first
    controller.reconcile()
    assert pool.status(second).message == "waits for a place on tier narrow: 1 of 1 are taken"
    worker.report(finished())
    controller.reconcile()
    assert pool.status(second).message == "waiting for a worker"


def test_the_server_starts_no_worker_of_its_own_for_a_tier_that_pulls(pool, build, controller):
    run_id = submit(pool, build, "one")
    controller.reconcile()
    with pool.world.store.read() as session:
        assert runs.get(session, run_id).state.worker_pid is None


@pytest.mark.parametrize(
    ("load", "obstacle"),
    [
        (Load(), None),
        (Load(jobs=1), None),
        (
            Load(jobs=1, models=1),
            "waits for memory on tier t: 11 of 16 GB are taken (jobs: 1, served models: 1), a job needs 6 GB",
        ),
        (Load(jobs=3), "waits for a place on tier t: 3 of 3 are taken"),
    ],
)
def test_a_job_begins_where_it_fits_beside_what_works_and_serves(load, obstacle):
    tier = Tier(id="t", num_cpus=1, ram_gb=16, credits_per_node_hour=0, slots=3, job_gb=6, serving_gb=5)
    assert queue.obstacle(tier, load) == obstacle


def test_a_job_larger_than_its_tier_says_so():
    tier = Tier(id="t", num_cpus=1, ram_gb=16, credits_per_node_hour=0, job_gb=17)
    assert queue.obstacle(tier, Load()) == "does not fit tier t: a job needs 17 GB, there are 16"


def test_a_run_that_does_not_fit_beside_what_serves_is_not_started(world, build):
    """Of the server's own machine, with a deployment that serves on it."""
    tight = Tier(id="local", num_cpus=1, ram_gb=16, credits_per_node_hour=0, slots=2, job_gb=12, serving_gb=5)
    made = replace(make(world, tight), settings=world.settings.model_copy(
        update={"worker": Workers(command=("/no/such/program",))}))  # fmt: skip
    resources.put(made, resources.Put(Address("deployment", "chat"), build.deployment(), None))
    serve(made)
    run_id = resources.put(
        made, resources.Put(Address("experiment", "e"), build.experiment("e"), None)
    ).run.run_id
    RunsController(made, LocalExecutor(made)).reconcile()
    with made.store.read() as session:
        state = runs.get(session, run_id).state
    assert (state.state, state.restarts) == (RunState.QUEUED, 0)
    assert state.message.startswith("waits for memory on tier local: 5 of 16 GB are taken")


def test_policies_are_no_served_models(world, build):
    """They share one small process on the server's own machine."""
    resources.put(world, resources.Put(Address("deployment", "chat"), build.deployment(), None))
    counted = []
    for model in ("tiny", POLICIES):
        serve(world, model, number=len(counted) + 1)
        with world.store.read() as session:
            counted.append(sum(load.models for load in queue.loads(session, world).values()))

    assert counted == [1, 1]


def serve(world, model="tiny", number=1):
    from arena_runner.server.store.tables import RevisionRow

    with world.store.write() as session:
        row = RevisionRow(namespace="main", deployment="chat", number=number, run_id="r", version=1, step=1)
        row.member, row.digest, row.files, row.model, row.adapter = 0, "sha256:0", {}, {"id": model}, "a"
        row.state, row.message, row.created, row.updated = "serving", "", 0.0, 0.0
        session.add(row)


def test_a_budget_of_credits_counts_every_segment_at_its_price(pool, build, controller):
    """36 credits an hour: 300 s cost 3."""
    run_id = submit(pool, build, "one", budget={"max_credits": 3})
    worker = pool.worker()
    assert worker.take()["limits"]["max_runtime_s"] == pytest.approx(300)
    for seconds in (40, 40, 40):
        pool.world.clock.now += seconds
        worker.report()
    worker.save(5)
    worker.hand_back()
    pool.world.clock.now += 10_000  # waiting costs nothing
    assert worker.take()["limits"]["max_runtime_s"] == pytest.approx(180)
    for _ in range(3):
        pool.world.clock.now += 59
        worker.report()
        controller.reconcile()
    assert worker.report().json()["directive"] == "continue"
    pool.world.clock.now += 4
    controller.reconcile()
    assert worker.report().json()["directive"] == "stop"
    worker.save(9)
    worker.report(finished("stopped"))
    status = pool.status(run_id)
    assert (status.state, status.reason) == (RunState.FAILED, "budget")
    assert status.message == "reached its budget of 3 credits; raise it to continue"
    assert change(pool, build, "one", budget={"max_credits": 30}).run_id == run_id
    assert worker.take()["resume"]["iteration"] == 9


def test_nodes_multiply_the_price(pool, build):
    submit(pool, build, "one", budget={"max_credits": 3}, num_nodes=2)
    assert pool.worker().take()["limits"]["max_runtime_s"] == pytest.approx(150)


def test_the_tighter_of_time_and_credits_counts(pool, build):
    submit(pool, build, "one", budget={"max_credits": 3, "max_runtime_s": 120})
    assert pool.worker().take()["limits"]["max_runtime_s"] == pytest.approx(120)


def test_a_worker_that_kept_the_budget_while_no_server_was_there_is_believed(pool, build):
    run_id = submit(pool, build, "one", budget={"max_runtime_s": 50})
    worker = pool.worker()
    worker.take()
    pool.world.clock.now += 51
    worker.report(started(), finished("stopped"))
    assert (pool.status(run_id).state, pool.status(run_id).reason) == (RunState.FAILED, "budget")


def test_an_iteration_that_outlasts_the_budget_by_far_is_cut_off_with_the_last_state_kept(
    pool, build, controller
):
    run_id = submit(pool, build, "one", budget={"max_runtime_s": 50})
    worker = pool.worker()
    worker.take()
    worker.save(3)
    for _ in range(int(OVERRUN_S + 50) // 30 + 2):
        pool.world.clock.now += 30
        worker.report()
        controller.reconcile()
    status = pool.status(run_id)
    assert (status.state, status.reason) == (RunState.FAILED, "budget")
    assert worker.report(said()).status_code == 409
    change(pool, build, "one", budget={"max_runtime_s": 5000})
    assert worker.take()["resume"]["iteration"] == 3


def test_a_run_a_person_stopped_is_stopped_also_when_it_is_cut_off(pool, build, controller):
    run_id = submit(pool, build, "one", budget={"max_runtime_s": 50})
    worker = pool.worker()
    worker.take()
    stop(pool, run_id)
    for _ in range(int(OVERRUN_S + 50) // 30 + 2):
        pool.world.clock.now += 30
        worker.report()
        controller.reconcile()
    assert (pool.status(run_id).state, pool.status(run_id).message) == (RunState.STOPPED, "stopped by a user")


def test_a_budget_raised_by_too_little_spends_nothing_more(pool, build, controller):
    run_id = submit(pool, build, "one", budget={"max_runtime_s": 50})
    worker = pool.worker()
    worker.take()
    pool.world.clock.now += 55
    worker.report(finished("stopped"))
    assert change(pool, build, "one", budget={"max_runtime_s": 54}).state == RunState.FAILED
    assert change(pool, build, "one", budget={"max_runtime_s": 60}).state == RunState.QUEUED
    assert worker.take()["run_id"] == run_id


def fail(worker, reason="user_code"):
    worker.take()
    worker.report(started(), finished("failed", reason=reason, message="KeyError: 'x'"))


def test_a_failed_run_is_held_unless_its_retry_says_otherwise(pool, build):
    worker = pool.worker()
    for n, retry in enumerate(
        ({}, {"max": 3}, {"max": 3, "on": ["preempted"]}, {"max": 0, "on": ["failed"]})
    ):
        run_id = submit(pool, build, f"held{n}", retry=retry)
        fail(worker)
        assert pool.status(run_id).state == RunState.FAILED, retry


@pytest.mark.parametrize("reason", ["user_code", "oom"])
def test_retry_on_failed_tries_so_many_times_from_the_last_state(pool, build, reason):
    run_id = submit(pool, build, "one", retry={"max": 2, "on": ["failed"]})
    worker = pool.worker()
    worker.take()
    worker.save(4)
    worker.report(finished("failed", reason=reason, message="KeyError: 'x'"))
    waiting = pool.status(run_id)
    assert waiting.state == RunState.QUEUED
    assert waiting.message == f"failed ({reason}): KeyError: 'x'; continues from iteration 4 (retry 1 of 2)"
    fail(worker, reason)
    assert pool.status(run_id).state == RunState.QUEUED
    fail(worker, reason)
    assert (pool.status(run_id).state, pool.status(run_id).message) == (RunState.FAILED, "KeyError: 'x'")


def test_a_retry_does_not_outlive_a_stop(pool, build):
    run_id = submit(pool, build, "one", retry={"max": 2, "on": ["failed"]})
    worker = pool.worker()
    worker.take()
    stop(pool, run_id)
    worker.report(started(), finished("failed", reason="user_code", message="x"))
    assert pool.status(run_id).state == RunState.FAILED


def test_retry_on_preempted_allows_more_restarts_than_every_run_has(pool, build):
    run_id = submit(pool, build, "one", retry={"max": 5, "on": ["preempted"]})
    worker = pool.worker()
    for attempt in range(6):
        assert pool.status(run_id).state == RunState.QUEUED, attempt
        worker.take()
        worker.hand_back(fault=True, message="the node went away")
    assert pool.status(run_id).message == "the node went away; gave up after 5 restarts without progress"
