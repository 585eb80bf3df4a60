"""Workers as real processes: killed, orphaned, drained, chained; the server notices and goes on."""

import os
import signal

import psutil
import pytest

from arena_runner.server.processes import clean_environment


def apply(server, build, name="exp", **script):
    return server.apply(name, build.experiment(name, seed=name, **script))["run"]["run_id"]


def worker_of(server, run_id):
    [(pid,)] = server.rows("select worker_pid from run_states where run_id = :run", run=run_id)
    return pid


def ended(pid):
    """Gone, or a zombie that nobody in this container reaps."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def segments(server, run_id):
    return sorted({e["segment"] for e in server.events(run_id)})


def test_a_worker_killed_in_mid_training_is_replaced_and_the_run_completes(shared_server, build):
    run_id = apply(shared_server, build, "killed", steps=40, pause_s=0.3)
    build.until(lambda: shared_server.run(run_id)["step"] >= 8)
    os.kill(worker_of(shared_server, run_id), signal.SIGKILL)
    run = shared_server.wait_run(run_id)
    assert (run["state"], run["step"], run["segments"]) == ("completed", 40, 2)
    resumed = [
        e["event"]["resumed_at_iteration"]
        for e in shared_server.events(run_id)
        if e["event"]["type"] == "started"
    ]
    assert resumed[0] is None
    assert resumed[1] >= 1


@pytest.mark.one_database
def test_a_worker_that_always_dies_fails_the_run_with_its_last_words(shared_server, build):
    run_id = apply(shared_server, build, "dying", die_in=[[n, 1] for n in range(5)])
    run = shared_server.wait_run(run_id)
    assert (run["state"], run["reason"], run["segments"]) == ("failed", "infra", 4)
    assert run["message"].startswith("its worker process ended (segment 3 from iteration 0); gave up")


def test_a_stopped_run_stops_at_the_end_of_its_iteration(shared_server, build):
    run_id = apply(shared_server, build, "stopped", steps=800, pause_s=0.2)
    build.until(lambda: shared_server.run(run_id)["step"] >= 8)
    shared_server.http.post(f"/api/v1/runs/{run_id}/stop")
    run = shared_server.wait_run(run_id)
    assert (run["state"], run["message"]) == ("stopped", "stopped by a user")


def test_retiring_an_experiment_stops_its_run(shared_server, build):
    run_id = apply(shared_server, build, "retired", steps=800, pause_s=0.2)
    build.until(lambda: shared_server.run(run_id)["state"] == "running")
    assert shared_server.retire("experiment/retired").status_code == 204
    assert shared_server.wait_run(run_id)["message"] == "its experiment was retired"


def test_a_raised_budget_resumes_the_same_run(shared_server, build):
    first = shared_server.apply("raised", build.experiment("raised", seed="raised", steps=16))
    run_id = first["run"]["run_id"]
    shared_server.wait_run(run_id)
    shared_server.apply("raised", build.experiment("raised", seed="raised", steps=32), etag=first["etag"])
    run = build.until(lambda: (r := shared_server.run(run_id))["step"] == 32 and r)
    assert (run["max_steps"], segments(shared_server, run_id)) == (32, [0, 1])


def test_a_chained_experiment_waits_for_its_base_and_gets_its_files(shared_server, build):
    base = {"experiment": "first", "checkpoint": "best"}
    chained = apply(shared_server, build, "second", base=base)
    waiting = build.until(
        lambda: (r := shared_server.run(chained))["message"] != "waiting for a worker" and r
    )
    assert waiting["message"] == "waits for experiment/first, its base, which does not exist"
    first = apply(shared_server, build, "first", steps=16)
    assert shared_server.wait_run(chained)["state"] == "completed"
    best = shared_server.run(first)["best"]
    [(inputs,)] = shared_server.rows("select cast(inputs as text) from runs where id = :run", run=chained)
    assert all(digest in inputs for digest in best["files"].values())


def test_a_tier_nobody_knows_is_mapped_and_the_log_says_so(shared_server, build):
    body = build.experiment("mapped", seed="mapped")
    body = body.model_copy(update={"spec": {**body.spec, "tier": "arena-medium", "num_nodes": 2}})
    run_id = shared_server.apply("mapped", body)["run"]["run_id"]
    shared_server.wait_run(run_id)
    log = shared_server.http.get(f"/api/v1/runs/{run_id}/logs").text
    assert "tier 'arena-medium' is not one of this server's (local); using 'local'" in log
    assert "num_nodes 2 is clamped to 1" in log


def test_the_next_server_adopts_living_workers_buries_the_dead_and_continues_what_was_drained(
    make_server, build
):
    server = make_server(tiers=2).start()
    lives, dies = (apply(server, build, name, steps=64, pause_s=0.5) for name in ("lives", "dies"))
    build.until(lambda: all(server.run(run_id)["step"] >= 8 for run_id in (lives, dies)))
    pids, port = [worker_of(server, run_id) for run_id in (lives, dies)], server.announcement()["port"]
    server.stop(signal.SIGKILL)
    os.kill(pids[1], signal.SIGKILL)
    server.start()
    assert server.announcement()["port"] == port
    assert worker_of(server, lives) == pids[0]
    build.until(lambda: server.run(dies)["segments"] == 2)
    server.stop()
    assert ended(pids[0])
    server.start()
    runs = [server.wait_run(run_id) for run_id in (lives, dies)]
    assert [(run["state"], run["step"]) for run in runs] == [("completed", 64), ("completed", 64)]
    assert [run["segments"] for run in runs] == [2, 3]


def test_a_tier_has_no_more_workers_than_slots(server, build):
    first = apply(server, build, "a", steps=24, pause_s=0.3)
    second = apply(server, build, "b", steps=16)
    build.until(lambda: server.run(first)["state"] == "running")
    assert server.run(second)["state"] == "queued"
    assert server.wait_run(second)["state"] == "completed"


def test_a_worker_inherits_no_secret_of_the_server(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("ARENA_API_KEY", "hush")
    environment = clean_environment({"ARENA_WORKER_TOKEN": "its own"})
    assert "hush" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
