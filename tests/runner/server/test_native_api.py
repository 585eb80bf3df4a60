"""The native API over a real server process: what it stores, what it refuses and how it says so."""

import hashlib

import httpx
import pytest
from person import asking
from starlette.testclient import TestClient

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.wire import ErrorBody, Owner, PutResource, StateDocument
from arena_runner.server.app import create_app

ZEROS = "sha256:" + "0" * 64


def put(server, build, name, **more):
    return server.apply(name, build.experiment(name, seed=name, **more))


def test_an_experiment_trains_and_its_run_completes(shared_server, build):
    document = put(shared_server, build, "trains")
    run = shared_server.wait_run(document["run"]["run_id"])
    assert (run["state"], run["step"], run["best"]["step"]) == ("completed", 16, 16)


def test_the_same_key_and_body_give_the_same_answer_and_one_run(shared_server, build):
    body = build.experiment("once", seed="once")
    answers = [shared_server.put("experiment", "once", body, key="k-once") for _ in range(2)]
    assert answers[0].json() == answers[1].json()


def test_the_same_key_with_another_body_is_refused(shared_server, build):
    shared_server.put("experiment", "twice", build.experiment("twice", seed="twice"), key="k-twice")
    answer = shared_server.put("experiment", "twice", build.experiment("twice", seed="other"), key="k-twice")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency-mismatch")


def test_an_etag_that_has_moved_is_stale(shared_server, build):
    first = put(shared_server, build, "moves")
    changed = build.experiment("moves", seed="moves2")
    assert shared_server.put("experiment", "moves", changed, etag=first["etag"]).status_code == 200
    answer = shared_server.put("experiment", "moves", build.experiment("moves", seed="3"), etag=first["etag"])
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")


def test_a_create_of_what_exists_is_stale(shared_server, build):
    put(shared_server, build, "exists")
    answer = shared_server.put("experiment", "exists", build.experiment("exists", seed="exists"))
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")


def test_a_name_of_another_stack_is_refused_and_its_owner_named(shared_server, build):
    first = put(shared_server, build, "owned")
    theirs = build.experiment("owned", seed="x").model_copy(update={"owner": Owner(stack="others")})
    answer = shared_server.put("experiment", "owned", theirs, etag=first["etag"])
    body = answer.json()
    assert (answer.status_code, body["code"], body["details"]["owner"]) == (409, "owned-by-other", "team")


def test_state_lists_what_others_own_as_foreign(shared_server, build):
    put(shared_server, build, "seen")
    state = StateDocument.model_validate(shared_server.state("others"))
    assert state.resources == ()
    assert "experiment/seen team" in state.foreign


def test_state_is_not_sent_again_while_nothing_has_changed(world):
    ask = {"url": "/api/v1/state", "params": {"stack": "team"}}
    with asking(world) as client:
        known = {"If-None-Match": client.get(**ask).headers["etag"]}
        assert client.get(**ask, headers=known).status_code == 304
        body = PutResource(owner=Owner(stack="team"), spec={}, fingerprint=fingerprint({}, {}))
        assert client.put("/api/v1/resources/project/p", json=body.model_dump()).status_code == 200
        assert client.get(**ask, headers=known).status_code == 200


def test_a_namespace_is_a_world_of_its_own(shared_server, build):
    put(shared_server, build, "spaced")
    preview = Owner(stack="team", namespace="pr-1")
    body = build.experiment("spaced", seed="spaced").model_copy(update={"owner": preview})
    document = shared_server.apply("spaced", body)
    mine = shared_server.resource("experiment/spaced")
    assert document["owner"]["namespace"] == "pr-1"
    assert mine["run"]["run_id"] == document["run"]["run_id"], "an equal fingerprint shares the run"


def test_an_algorithm_without_a_room_is_refused_by_name(shared_server, build):
    body = build.experiment("cqn")
    manifest = {**body.spec["manifest"], "algorithm": {"name": "CQN"}}
    body = body.model_copy(update={"spec": {**body.spec, "manifest": manifest}})
    answer = shared_server.put("experiment", "cqn", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "unsupported-algorithm")
    assert "CQN" in answer.json()["message"]


def test_a_spec_that_is_none_is_refused_with_every_problem(shared_server, build):
    body = build.experiment("broken").model_copy(update={"spec": {"manifest": 3, "colour": "red"}})
    message = shared_server.put("experiment", "broken", body).json()["message"]
    assert all(name in message for name in ("manifest", "inputs", "colour"))


def test_inputs_must_be_uploaded_first(shared_server, build):
    reward = {"address": "reward/r", "files": {"r.py": ZEROS}, "entry": "r.py"}
    body = build.experiment("bare")
    body = body.model_copy(update={"spec": {**body.spec, "inputs": {"reward": reward}}})
    answer = shared_server.put("experiment", "bare", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "blob-missing")
    assert answer.json()["details"] == {"missing": ZEROS}


def test_a_blob_is_stored_once_and_given_back(shared_server):
    data = b"question,answer\n1+1,2\n"
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    url = f"/api/v1/blobs/{digest}"
    codes = [shared_server.http.head(url).status_code]
    codes += [shared_server.http.put(url, content=data).status_code for _ in range(2)]
    codes.append(shared_server.http.head(url).status_code)
    assert (codes, shared_server.http.get(url).content) == ([404, 201, 200, 200], data)


def test_bytes_that_are_not_what_their_name_says_are_refused_and_leave_nothing(shared_server):
    answer = shared_server.http.put(f"/api/v1/blobs/{ZEROS}", content=b"something else")
    assert (answer.status_code, answer.json()["code"]) == (422, "digest-mismatch")
    assert list((shared_server.home / "blobs").rglob(".incoming-*")) == []
    assert shared_server.http.head(f"/api/v1/blobs/{ZEROS}").status_code == 404


@pytest.mark.parametrize("name", ["sha256:ABC", "..%2f..%2fserver.json", "md5:" + "0" * 32])
def test_a_blob_name_that_is_no_digest_is_refused(shared_server, name):
    answer = shared_server.http.put(f"/api/v1/blobs/{name}", content=b"x")
    assert answer.status_code in {404, 422}
    ErrorBody.model_validate(answer.json())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nowhere", 404),
        ("PATCH", "/api/v1/state", 405),
        ("GET", "/api/v1/state", 422),
        ("GET", "/api/v1/runs/r_none", 404),
        ("GET", "/api/v1/runs/r_none/logs", 404),
        ("GET", "/api/v1/runs/r_none/events", 404),
        ("POST", "/api/v1/runs/r_none/stop", 404),
        ("PUT", "/api/v1/resources/planet/mars", 422),
        ("DELETE", "/api/v1/resources/experiment/x?stack=team&mode=erase", 422),
    ],
)
def test_every_refusal_is_an_error_body_with_a_request_id(shared_server, method, path, status):
    answer = shared_server.http.request(method, path, headers={"X-Request-ID": "r-17"})
    body = ErrorBody.model_validate(answer.json())
    assert (answer.status_code, answer.headers["x-request-id"]) == (status, "r-17")
    assert body.message
    assert "[" not in body.message


def test_a_body_over_the_limit_is_refused(shared_server):
    big = b"x" * (65 * 2**20)
    answer = shared_server.http.put("/api/v1/resources/project/p", content=big)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_without_a_token_or_with_a_wrong_one_nothing_is_told(shared_server):
    base = str(shared_server.http.base_url)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
        answer = httpx.get(f"{base}/api/v1/state", params={"stack": "team"}, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        ErrorBody.model_validate(answer.json())


def test_health_and_readiness_need_no_token(shared_server):
    base = str(shared_server.http.base_url)
    assert httpx.get(f"{base}/healthz").json() == {"ok": True, "draining": False}
    assert httpx.get(f"{base}/readyz").json()["ok"] is True


def test_tiers_describe_the_server(shared_server):
    (tier,) = shared_server.http.get("/api/v1/tiers").json()
    assert (tier["id"], tier["slots"]) == ("local", 8)


def test_retiring_what_is_gone_is_no_error_but_an_old_etag_is(shared_server, build):
    first = put(shared_server, build, "leaves")
    assert shared_server.retire("experiment/leaves", "0.0").status_code == 412
    codes = [shared_server.retire("experiment/leaves", first["etag"]).status_code for _ in range(2)]
    assert codes == [204, 204]


def test_events_come_in_order_and_from_where_one_asks(shared_server, build):
    run_id = put(shared_server, build, "eventful")["run"]["run_id"]
    shared_server.wait_run(run_id)
    events = shared_server.events(run_id)
    assert [e["index"] for e in events] == list(range(1, len(events) + 1))
    assert (events[0]["event"]["type"], events[-1]["event"]["type"]) == ("started", "finished")
    assert shared_server.events(run_id, after=len(events) - 1) == events[-1:]
    assert shared_server.events(run_id, after=2**53) == []


def test_logs_hold_what_the_worker_printed(shared_server, build):
    run_id = put(shared_server, build, "printed")["run"]["run_id"]
    shared_server.wait_run(run_id)
    text = shared_server.http.get(f"/api/v1/runs/{run_id}/logs").text
    rest = shared_server.http.get(f"/api/v1/runs/{run_id}/logs", params={"after": 10})
    assert rest.text == text[10:]
    assert f"starting a worker for run {run_id}" in text
    assert "segment 0 from iteration 0" in text


def test_a_fault_of_the_server_is_an_error_body_that_points_to_its_log(world):
    app = create_app(world)

    @app.get("/boom")
    def boom():
        raise ZeroDivisionError("secret detail")

    answer = TestClient(app).get("/boom", headers={"X-Request-ID": "r-18"})
    body = ErrorBody.model_validate(answer.json())
    assert (answer.status_code, body.code, body.details) == (500, "internal", {"request_id": "r-18"})
    assert "secret" not in body.message


@pytest.mark.parametrize("name", ["PR 12", "../x", "", "a\n"])
@pytest.mark.parametrize("what", ["namespace", "stack"])
def test_a_namespace_or_stack_that_is_no_name_is_refused(shared_server, build, what, name):
    owner = Owner(**{"stack": "team", what: name})
    body = build.experiment("x").model_copy(update={"owner": owner})
    answer = shared_server.put("experiment", "x", body)
    assert (answer.status_code, answer.json()["code"]) == (422, f"bad-{what}")
    gone = shared_server.http.delete("/api/v1/resources/reward/x", params=owner.model_dump())
    assert gone.status_code == 422
