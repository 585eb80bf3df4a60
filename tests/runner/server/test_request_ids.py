"""A request's id: on its answer, in the log, with the run it made, and on what the run's worker says."""

import io
import json
import logging

import pytest
from starlette.testclient import TestClient

from arena_gitops.platforms.door import JSON, Door, Request, json_body
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import REQUEST_ID, ClaimRequest
from arena_runner import logs
from arena_runner.server.app import create_app
from arena_runner.server.auth import Role, issue
from arena_runner.server.services import jobs, resources


@pytest.fixture
def lines():
    """Every line of this process as JSON, while the test runs; call it to read them."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    logs.configure("json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def client(world):
    app = create_app(world)

    @app.get("/boom")
    def boom():
        raise RuntimeError("kaboom")

    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {issue(world, Role.ADMIN, 'ada')}"
        yield client


@pytest.mark.parametrize(
    "bad", ["", "a b", "x" * 65, "a\tb", "{}", "-first", "é", "a/b"], ids=lambda text: repr(text[:8])
)
def test_an_id_that_is_no_plain_word_is_replaced(client, bad):
    answer = client.get("/healthz", headers={REQUEST_ID: bad.encode("latin-1")})
    assert len(answer.headers[REQUEST_ID]) == 32
    assert answer.headers.get_list(REQUEST_ID) == [answer.headers[REQUEST_ID]]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/healthz", 200), ("GET", "/nowhere", 404), ("POST", "/healthz", 405), ("GET", "/boom", 500)],
)
def test_every_answer_has_the_id_that_was_sent(client, method, path, status):
    answer = client.request(method, path, headers={REQUEST_ID: "cli-17"})
    assert (answer.status_code, answer.headers[REQUEST_ID]) == (status, "cli-17")


def test_a_body_that_is_too_large_is_refused_under_its_id(client):
    headers = {REQUEST_ID: "big-1", "Content-Length": str(2**40)}
    answer = client.post("/api/v1/checks", headers=headers, content=b"")
    assert (answer.status_code, answer.headers[REQUEST_ID]) == (413, "big-1")


def test_a_request_is_one_line_that_names_its_route_and_who_asked(client, lines):
    client.get("/api/v1/runs/r_1/events?after=3&token=geheim", headers={REQUEST_ID: "ask-1"})
    (line,) = [line for line in lines() if line["logger"] == "arena_runner.requests"]
    about = {name: line[name] for name in ("request_id", "method", "route", "status", "subject", "run_id")}
    assert about == {
        "request_id": "ask-1",
        "method": "GET",
        "route": "/api/v1/runs/{run_id}/events",
        "status": 404,
        "subject": "ada",
        "run_id": "r_1",
    }
    assert line["ms"] >= 0


def test_neither_tokens_nor_queries_nor_unknown_paths_get_into_the_log(client, lines):
    secret = client.headers["Authorization"].partition(" ")[2]
    for path in (
        f"/api/v1/state?stack={secret}",
        f"/nowhere/{secret}",
        f"/boom?key={secret}",
        "/api/v1/state",
    ):
        client.get(path)
        client.get(path, headers={"Authorization": f"Bearer wrong-{secret}"})
    assert len(lines()) >= 8
    assert secret not in json.dumps(lines())


def test_a_failing_request_leaves_its_traceback_under_its_id(client, lines):
    answer = client.get("/boom", headers={REQUEST_ID: "fail-1"})
    (line,) = [line for line in lines() if line["level"] == "ERROR"]
    assert answer.json()["details"] == {"request_id": "fail-1"}
    assert line["request_id"] == "fail-1"
    assert "kaboom" in line["traceback"]


def test_a_run_remembers_the_request_that_made_it_and_its_worker_is_told(world, client, build):
    body = build.experiment().model_dump(mode="json")
    made = client.put("/api/v1/resources/experiment/exp", json=body, headers={REQUEST_ID: "make-1"}).json()
    assert made["run"]["request_id"] == "make-1"
    claimed = jobs.claim(world, ClaimRequest(worker_id="w", tier="local"))
    assert claimed is not None
    assert claimed.job.request_id == "make-1"


def test_a_run_made_without_a_request_has_none(world, build):
    document = resources.put(world, resources.Put(Address("experiment", "exp"), build.experiment(), None))
    assert document.run is not None
    assert document.run.request_id is None


def test_from_the_command_to_the_worker_one_id(shared_server, build):
    """Made by the command's own door; what real workers say under it is in loop/test_pool_end_to_end.py."""
    body = build.experiment("traced").model_dump(mode="json")
    path = "/api/v1/resources/experiment/traced"
    door = Door(str(shared_server.http.base_url), shared_server.announcement()["token"])
    answer = door.call(Request("PUT", path, headers=JSON, body=json_body(body)))
    door.close()
    number = answer.headers[REQUEST_ID]
    run = shared_server.wait_run(answer.json()["run"]["run_id"])
    assert (run["state"], run["request_id"]) == ("completed", number)
    log = (shared_server.home / "server.log").read_text()
    mine = [line for line in log.splitlines() if f"request_id={number}" in line]
    assert any("route=/api/v1/resources/{kind}/{name}" in line for line in mine)
    assert any("started a worker" in line and f"run_id={run['run_id']}" in line for line in mine)
