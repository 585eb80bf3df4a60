"""What Prometheus and a load balancer are told, by a server whose insides the test moves."""

import shutil
from collections import namedtuple
from dataclasses import replace

import pytest
from pool import PoolWorker, pull_tier
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from starlette.testclient import TestClient

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import ClaimRequest, EventBatch
from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.services import jobs, resources
from arena_runner.server.settings import TierFile
from arena_runner.server.world import ModelServer


@pytest.fixture
def client(world):
    with TestClient(create_app(world), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {issue(world, Role.VIEWER, 'prometheus')}"
        yield client


@pytest.fixture
def figures(client):
    """`figures()`: every sample of /metrics, as {(name, labels): value}."""

    def read():
        answer = client.get("/metrics")
        assert answer.status_code == 200, answer.text
        families = text_string_to_metric_families(answer.text)
        return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}

    return read


@pytest.fixture
def submit(world, build):
    """Submit an experiment; gives the run's id."""

    def put(name, **fields):
        body = build.experiment(name, **fields)
        made = resources.put(world, resources.Put(Address("experiment", name), body, None))
        assert made.run is not None
        return made.run.run_id

    return put


@pytest.mark.parametrize("headers", [{"Authorization": ""}, {"Authorization": "Bearer wrong"}])
def test_figures_need_a_token_also_on_loopback(client, headers):
    assert client.get("/metrics", headers=headers).status_code == 401


def test_a_server_where_nothing_happens_tells_zeros_and_who_it_is(figures):
    found = figures()
    assert {found["arena_runs", state] for state in ("queued", "running", "failed")} == {0}
    assert (found["arena_queue_length", "local"], found["arena_queue_oldest_seconds", "local"]) == (0, 0)
    assert found["arena_mlflow_up",] == 0
    assert found["arena_disk_free_bytes",] > 0
    assert any(name == "arena_build_info" for name, *_ in found)


def test_the_queue_is_counted_by_tier_with_the_age_of_its_first(world, submit, figures):
    submit("one")
    world.clock.now += 30
    submit("two", seed=2)
    world.clock.now += 12
    found = figures()
    assert (found["arena_runs", "queued"], found["arena_queue_length", "local"]) == (2, 2)
    assert found["arena_queue_oldest_seconds", "local"] == 42


def test_a_claimed_run_leaves_the_queue_and_its_reports_wait_for_mlflow(world, submit, figures):
    submit("one")
    claim = jobs.claim(world, ClaimRequest(worker_id="w", tier="local"))
    assert claim is not None
    started = {"type": "started", "seq": 1, "device": "cpu", "dtype": "float32", "threads": 1, "members": 1}
    started |= {"rows_in_flight": 1, "tokens_per_backward": 1, "versions": {}, "model": None, "max_steps": 8}
    progress = {"type": "progress", "seq": 2, "member": 0, "step": 1, "max_steps": 8, "iteration": 1}
    progress |= {"reward": 0.5, "tokens_per_second": 17.0, "eta_seconds": 1.0}
    batch = EventBatch.model_validate({"fence": claim.fence, "events": [started, progress]})
    jobs.report(world, claim.job.run_id, claim.job.segment, batch)
    found = figures()
    assert (found["arena_runs", "running"], found["arena_queue_length", "local"]) == (1, 0)
    assert (found["arena_workers_busy", "local"], found["arena_events_untracked",]) == (1, 2)
    assert found["arena_training_tokens_per_second", "local"] == 17


def test_deployments_are_counted_by_state_until_they_are_retired(world, build, figures):
    address = Address("deployment", "chat")
    made = resources.put(world, resources.Put(address, build.deployment(), None))
    assert figures()["arena_deployments", "pending"] == 1
    resources.retire(world, address, made.owner, made.etag)
    assert sum(value for (name, *_), value in figures().items() if name == "arena_deployments") == 0


def test_requests_are_timed_by_route_and_status_never_by_path(client, figures):
    for name in ("r_1", "r_2"):
        client.get(f"/api/v1/runs/{name}")
    client.get("/made/up")
    found = figures()
    count = "arena_http_request_duration_seconds_count"
    assert found[count, "GET", "/api/v1/runs/{run_id}", "404"] == 2
    assert found[count, "GET", "(no route)", "404"] == 1
    assert not any("r_1" in str(key) or "made" in str(key) for key in found)


def test_an_unheard_of_method_makes_no_label_of_its_own(client, figures):
    client.request("BREW", "/api/v1/state")
    assert not any("BREW" in str(key) for key in figures())


def test_stored_bytes_and_processes_are_told(world, figures):
    world.blobs.put(b"x" * 1000)
    world.links.starts["mlflow"] = 3
    world.links.model_servers["tiny"] = ModelServer("http://127.0.0.1:9", "t")
    found = figures()
    assert found["arena_blob_bytes",] == 1000
    assert (found["arena_process_starts_total", "mlflow"], found["arena_model_servers_up",]) == (3, 1)


def parts(answer):
    return {part["name"]: part for part in answer.json()["parts"]}


def test_without_mlflow_the_server_takes_work_and_says_what_is_missing(client):
    answer = client.get("/readyz", headers={"Authorization": ""})
    assert (answer.status_code, answer.json()["ok"], answer.json()["state"]) == (200, True, "degraded")
    assert parts(answer)["mlflow"]["message"].startswith("MLflow does not answer")
    assert [name for name, part in parts(answer).items() if not part["ok"]] == ["mlflow"]


def test_with_everything_there_it_is_ready(world, client):
    world.links.mlflow_ready.set()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert answer.json()["lineage"] == world.store.lineage()


def test_a_model_server_that_is_wanted_and_silent_is_named(world, client):
    world.links.wanted_models = frozenset({"tiny", "big"})
    world.links.model_servers["tiny"] = ModelServer("http://127.0.0.1:9", "t")
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert "big" in parts(answer)["model servers"]["message"]
    assert "tiny" not in parts(answer)["model servers"]["message"]


def test_workers_of_other_machines_are_counted_and_missed(world, client, figures):
    tiers = TierFile(tiers=(*world.tiers.tiers, pull_tier("gpu")))
    with TestClient(create_app(replace(world, tiers=tiers))) as other:
        other.headers = client.headers
        assert "tier gpu" in parts(other.get("/readyz"))["workers"]["message"]
        worker = PoolWorker(other, issue(world, Role.WORKER, "w"), "w-1", "gpu")
        assert worker.register().status_code == 200
        assert parts(other.get("/readyz"))["workers"]["ok"]
        text = other.get("/metrics").text
    assert 'arena_workers{state="idle",tier="gpu"} 1.0' in text


def test_a_stopping_server_takes_no_work(world, client):
    world.draining.set()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["state"]) == (503, "not-ready")
    assert parts(answer)["running"] == {
        "name": "running",
        "ok": False,
        "needed": True,
        "message": "the server is stopping",
    }


def test_a_database_of_another_version_is_not_worked_on(world, client):
    with world.store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "the database is at 0001" in parts(answer)["migrations"]["message"]


def test_a_database_that_is_gone_is_an_answer_not_a_failure(world, client):
    with world.store.engine.begin() as connection:
        connection.execute(text("DROP TABLE meta"))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert not parts(answer)["database"]["ok"]


def test_a_full_disk_takes_no_work(client, monkeypatch):
    usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as the library's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40 - 5 * 2**20, 5 * 2**20))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert parts(answer)["disk"]["message"].startswith("5 MiB are free")
