"""Workers of other machines: who is taken in, what their tokens open, and what a worker that went is refused."""

from dataclasses import replace

import pytest
from pool import Pool, code, digest_of, finished, pull_tier, said, started
from starlette.testclient import TestClient

from arena_gitops.spec.job import RunState
from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.controllers.runs import RunsController
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.services import runs, tokens
from arena_runner.server.settings import TierFile


@pytest.fixture
def pool(world):
    tiers = TierFile(tiers=(pull_tier(), pull_tier("big"), *world.tiers.tiers))
    made = replace(world, tiers=tiers)
    with TestClient(create_app(made)) as http:
        yield Pool(made, http)


@pytest.fixture
def controller(pool):
    return RunsController(pool.world, LocalExecutor(pool.world))


def listed(pool):
    headers = {"Authorization": f"Bearer {issue(pool.world, Role.VIEWER, 'somebody')}"}
    return pool.http.get("/api/v1/workers", headers=headers).json()


def test_a_worker_of_another_version_is_told_which_one_to_install(pool):
    answer = pool.worker(registered=False).register(version="0.0.1")
    assert (answer.status_code, code(answer)) == (426, "wrong-version")
    assert "install arena-runner==" in answer.json()["message"]


def test_a_token_of_one_tier_serves_no_other(pool, build):
    pool.submit(build.experiment(), tier="big")
    stranger = pool.worker("w1", "big", pool.token("gpu"), registered=False)
    assert (stranger.register().status_code, code(stranger.register())) == (403, "forbidden")
    assert (stranger.try_claim().status_code, code(stranger.try_claim())) == (403, "forbidden")
    own = pool.worker("w2", "gpu", stranger.token)
    assert own.take() is None
    assert own.try_claim(tier="big").status_code == 403


def test_a_tier_nobody_knows_and_one_the_server_does_itself_are_refused(pool):
    assert code(pool.worker("w1", "gqu", pool.token(), registered=False).register()) == "unknown-tier"
    refused = pool.worker("w2", "local", pool.token(), registered=False).register()
    assert code(refused) == "local-tier"
    assert "executor: pull" in refused.json()["message"]


def test_a_worker_registers_before_it_claims_and_under_its_own_name_only(pool):
    worker = pool.worker("w1", registered=False)
    assert (worker.try_claim().status_code, code(worker.try_claim())) == (409, "not-registered")
    worker.register()
    other = pool.worker("w1", "gpu", pool.token("gpu"), registered=False)
    assert other.register().status_code == 403
    assert other.try_claim().status_code == 409


def test_a_pool_worker_takes_what_is_next_and_does_not_choose(pool, build):
    run_id = pool.submit(build.experiment())
    assert pool.worker().try_claim(run_id=run_id).status_code == 422


def test_everybody_sees_who_is_there_and_what_they_do(pool, build):
    worker, _idle = pool.worker("w1"), pool.worker("w2", "big")
    run_id = pool.submit(build.experiment())
    worker.take()
    pool.world.clock.now += 30
    worker.report(started())
    busy, idle = sorted(listed(pool), key=lambda w: w["worker_id"])
    assert (busy["state"], busy["run_id"], busy["experiment"]) == ("busy", run_id, "exp")
    assert (busy["hostname"], busy["tier"], busy["executor"]) == ("gpu-7", "gpu", "pull")
    assert busy["heartbeat"] == pool.world.clock.now
    assert (idle["state"], idle["run_id"], idle["tier"]) == ("idle", None, "big")
    pool.world.clock.now += 61
    assert {w["state"] for w in listed(pool)} == {"lost"}


def test_a_worker_that_leaves_is_listed_no_more_and_one_that_was_lost_only_for_a_day(pool):
    leaving, lost = pool.worker("w1"), pool.worker("w2")
    leaving.ask("POST", "/api/v1/workers/leave", json={"worker_id": "w1"})
    assert [w["worker_id"] for w in listed(pool)] == ["w2"]
    pool.world.clock.now += 25 * 3600
    pool.worker("w3")
    assert [w["worker_id"] for w in listed(pool)] == ["w3"]
    assert code(lost.try_claim()) == "not-registered"


def test_a_pool_token_by_itself_opens_no_job(pool, build):
    worker = pool.worker()
    pool.submit(build.experiment())
    worker.take()
    path, digest = worker.job_path, digest_of(b"x")
    batch = {"fence": worker.claim["fence"]}
    for method, url, options in (
        ("POST", f"{path}/events", {"json": batch}),
        ("POST", f"{path}/hand-back", {"json": batch}),
        ("GET", f"/api/v1/blobs/{digest}", {}),
        ("HEAD", f"/api/v1/blobs/{digest}", {}),
        ("PUT", f"/api/v1/blobs/{digest}", {"content": b"x"}),
    ):
        assert worker.ask(method, url, **options).status_code == 409, url


def test_a_claims_token_opens_its_job_and_no_other(pool, build):
    own = pool.world.blobs.put(b"rows of the first")
    foreign = pool.world.blobs.put(b"rows of the second")
    first, second = pool.worker("w1"), pool.worker("w2")
    for name, digest in (("one", own), ("two", foreign)):
        dataset = {"address": f"dataset/{name}", "category": "sft", "column_mapping": {}, "digest": digest}
        pool.submit(build.experiment(name, seed=name), name, inputs={"dataset": dataset})
    first.take()
    second.take()
    assert first.read(own).content == b"rows of the first"
    assert (first.read(foreign).status_code, code(first.read(foreign))) == (403, "forbidden")
    answer = first.ask(
        "POST", f"{second.job_path}/events", first.claim["token"], json={"fence": second.claim["fence"]}
    )
    assert (answer.status_code, code(answer)) == (403, "forbidden")
    assert first.ask("POST", "/api/v1/workers/claim", first.claim["token"], json={
        "worker_id": "w1", "tier": "gpu"}).status_code == 403  # fmt: skip
    assert first.ask("GET", "/api/v1/state?stack=team", first.claim["token"]).status_code == 403


def test_a_revoked_worker_loses_the_job_it_holds(pool, build):
    pool.submit(build.experiment())
    worker = pool.worker()
    worker.take()
    assert worker.report(started()).status_code == 200
    from arena_runner.server.auth import token_id

    tokens.revoke(pool.world, token_id(worker.token))
    assert worker.report(said()).status_code == 401


def test_a_worker_that_wakes_late_is_refused_everywhere(pool, build, controller):
    run_id = pool.submit(build.experiment())
    late, new = pool.worker("w1"), pool.worker("w2")
    late.take()
    late.report(started())
    late.save(3)
    pool.world.clock.now += 61
    controller.reconcile()
    message = "its worker w1 fell silent; continues from iteration 3 (restart 1 of 3)"
    assert (pool.status(run_id).state, pool.status(run_id).message) == (RunState.QUEUED, message)
    for _ in range(2):  # before and after somebody else has the job
        state = digest_of(b"state 3")
        refusals = (
            late.report(said()),
            late.report(finished()),
            late.upload(b"y"),
            late.read(state),
            late.hand_back(),
        )
        assert [(r.status_code, code(r)) for r in refusals] == [(409, "fenced")] * 5
        new.take()
    assert new.claim["job"]["resume"]["iteration"] == 3
    assert new.read(state).content == b"state 3"
    assert new.report(started()).status_code == 200


def test_an_old_token_with_the_new_fence_is_refused_too(pool, build, controller):
    pool.submit(build.experiment())
    late, new = pool.worker("w1"), pool.worker("w2")
    late.take()
    pool.world.clock.now += 61
    controller.reconcile()
    new.take()
    late.claim = {**new.claim, "token": late.claim["token"]}
    assert code(late.report(started())) == "fenced"


def test_a_worker_whose_claim_was_answered_into_the_void_gets_it_again(pool, build):
    pool.submit(build.experiment())
    worker = pool.worker()
    first = worker.take()
    lost = worker.claim
    again = worker.take()
    assert again == first
    assert worker.report(started()).status_code == 200
    assert worker.claim["token"] != lost["token"]


def test_a_job_that_is_handed_back_waits_again_and_counts_as_no_restart(pool, build):
    run_id = pool.submit(build.experiment())
    worker = pool.worker()
    for attempt in range(5):
        worker.take()
        worker.report(started())
        worker.save(attempt + 1)
        assert worker.hand_back(message="its worker had to go").status_code == 204
    status = pool.status(run_id)
    assert (status.state, status.segments) == (RunState.QUEUED, 5)
    assert status.message == "its worker had to go; continues from iteration 5"
    assert code(worker.hand_back()) == "fenced"


def test_a_fault_of_the_worker_is_handed_back_with_its_reason_and_bounded(pool, build):
    run_id = pool.submit(build.experiment())
    worker = pool.worker()
    for _ in range(4):
        worker.take()
        worker.hand_back(fault=True, message="RuntimeError: no kernel image")
    status = pool.status(run_id)
    assert (status.state, status.reason) == (RunState.FAILED, "infra")
    assert status.message == "RuntimeError: no kernel image; gave up after 3 restarts without progress"


def test_handing_back_a_run_that_should_stop_stops_it(pool, build):
    run_id = pool.submit(build.experiment())
    worker = pool.worker()
    worker.take()
    with pool.world.store.write() as session:
        runs.stop(runs.get(session, run_id), "user", 0.0)
    worker.hand_back()
    assert pool.status(run_id).state == RunState.STOPPED


def test_a_server_that_was_away_gives_workers_a_lease_to_come_back(pool, build):
    run_id = pool.submit(build.experiment())
    pool.worker().take()
    pool.world.clock.now += 3600  # nobody listened for an hour
    controller = RunsController(pool.world, LocalExecutor(pool.world))
    controller.reconcile()
    assert pool.status(run_id).state == RunState.VALIDATING
    pool.world.clock.now += 61
    controller.reconcile()
    assert pool.status(run_id).state == RunState.QUEUED


def test_what_a_worker_elsewhere_reports_is_the_runs_log(pool, build):
    run_id = pool.submit(build.experiment())
    worker = pool.worker()
    worker.take()
    worker.report(started(), said("the first words"))
    headers = {"Authorization": f"Bearer {issue(pool.world, Role.VIEWER, 'somebody')}"}
    text = pool.http.get(f"/api/v1/runs/{run_id}/logs", headers=headers).text
    assert "server: worker w1 begins" in text
    assert "info: the first words" in text


def test_claims_that_were_over_long_ago_are_forgotten_and_living_ones_kept(pool, build, controller):
    pool.submit(build.experiment())
    worker = pool.worker()
    worker.take()
    first = worker.claim
    worker.hand_back()
    worker.take()
    controller.reconcile()
    for _ in range(26):
        pool.world.clock.now += 3600
        worker.report()
        controller.reconcile()
    assert worker.report(started()).status_code == 200
    worker.claim = first
    assert worker.report().status_code == 401


def test_a_run_that_has_ended_cannot_be_handed_back(pool, build):
    run_id = pool.submit(build.experiment())
    worker = pool.worker()
    worker.take()
    worker.report(started(), finished())
    for fault in (False, True):
        assert code(worker.hand_back(fault=fault)) == "fenced"
    assert pool.status(run_id).state == RunState.COMPLETED
