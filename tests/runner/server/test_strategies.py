"""How traffic moves to a new revision: at once, by shares of sessions, or with a gap; and what moves it back."""

from collections import deque

import pytest

from arena_gitops.spec.serving import Rollout
from arena_runner.server.services.rollouts import verdict
from arena_runner.server.traffic import Tally

pytestmark = pytest.mark.one_database  # rows are moved as `test_rollbacks` and `test_deployments` do on both

CANARY = {"type": "canary", "percent": 30, "watch": 600.0, "min_requests": 4}


@pytest.fixture
def rolled(shared_server, build, request):
    """`rolled(strategy)`: a deployment that serves r1 and is rolling r2 out, and its name."""
    server, name = shared_server, request.function.__name__.replace("_", "-")[-40:].strip("-")

    def roll(**strategy):
        first = server.apply(name, build.experiment(name, seed=f"{name}1"))
        server.apply(name, build.deployment(name, strategy=strategy), kind="deployment")
        build.until(lambda: status(server, name)["state"] == "serving")
        server.apply(name, build.experiment(name, steps=24, seed=f"{name}2"), etag=first["etag"])
        return server, name

    yield roll
    for left in [*shared_server.home.glob("fail_*"), *shared_server.home.glob("slow_*")]:
        left.unlink()


def status(server, name):
    return server.resource(f"deployment/{name}")["deployment"]


def ask(server, name, session=None):
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-session-id": session} if session else {}
    return server.http.post("/v1/chat/completions", json=body, headers=headers)


def streamed(server, name):
    body = {"model": name, "messages": [{"role": "user", "content": "say 1"}], "stream": True}
    return server.http.post("/v1/chat/completions", json=body).text


def speaker(server, name, session=None):
    """`name@revision` of an answer."""
    return ask(server, name, session).json()["system_fingerprint"].split()[0]


def states(server, name):
    found = server.http.get(f"/api/v1/deployments/{name}/revisions").json()
    return {r["number"]: r["state"] for r in found}


def test_a_canary_answers_its_share_of_the_sessions_and_each_session_always(rolled, build):
    server, name = rolled(**CANARY)
    build.until(lambda: states(server, name) == {1: "serving", 2: "canary"})
    told = build.until(lambda: (m := status(server, name)["message"]) and m)
    assert told.startswith("r2 step_24/m1 answers 30 % of the sessions until ")
    sides = {talk: speaker(server, name, talk) for talk in map(str, range(60))}
    assert {talk: speaker(server, name, talk) for talk in sides} == sides
    assert 8 <= list(sides.values()).count(f"{name}@2") <= 30
    assert speaker(server, f"{name}@1") == f"{name}@1"
    assert speaker(server, f"{name}@2") == f"{name}@2"


def test_a_canary_that_has_been_watched_takes_over(rolled, build):
    server, name = rolled(**{**CANARY, "watch": 1.0})
    build.until(lambda: states(server, name) == {1: "superseded", 2: "serving"})
    assert (status(server, name)["state"], speaker(server, name)) == ("serving", f"{name}@2")


def test_a_canary_whose_requests_fail_is_taken_back_and_not_tried_again(rolled, build):
    server, name = rolled(**CANARY)
    build.until(lambda: states(server, name).get(2) == "canary")
    (server.home / f"fail_{name}.r2").touch()
    while (answer := ask(server, f"{name}@2")).status_code != 404:
        assert answer.status_code == 502
    held = build.until(lambda: (d := status(server, name))["state"] == "held" and d)
    assert "requests failed (5% of at least 4 are allowed); r1 step_16/m1 keeps serving" in held["message"]
    assert held["refused"]
    assert {speaker(server, name) for _ in range(20)} == {f"{name}@1"}


def test_a_canary_whose_streams_begin_late_is_taken_back(rolled, build):
    server, name = rolled(**CANARY, max_first_token=0.4)
    build.until(lambda: states(server, name).get(2) == "canary")
    (server.home / f"slow_{name}.r2").touch()
    for _ in range(CANARY["min_requests"]):
        assert "data: " in streamed(server, f"{name}@2")
    held = build.until(lambda: (d := status(server, name))["state"] == "held" and d)
    assert "half of its streams began after " in held["message"]
    assert "(at most 0.4 s); r1 step_16/m1 keeps serving" in held["message"]
    assert states(server, name) == {1: "serving", 2: "failed"}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        ([0.5] * 3, None),  # too few to judge by
        ([0.1, 0.1, 0.1, 9.0], None),  # one slow stream is no slow model
        ([0.1, 0.5, 0.5, 0.5], "half of its streams began after 0.5 s (at most 0.4 s)"),
    ],
)
def test_streams_are_judged_by_the_middle_one_once_there_are_enough(seconds, told):
    rollout = Rollout(type="canary", min_requests=4, max_first_token=0.4)
    assert verdict(Tally(len(seconds), 0, deque(seconds)), rollout) == told


def test_what_took_over_and_does_badly_is_taken_back_by_itself(rolled, build):
    server, name = rolled(type="blue_green", watch=600.0, min_requests=4)
    build.until(lambda: states(server, name) == {1: "superseded", 2: "serving"})
    (server.home / f"fail_{name}.r2").touch()
    build.until(lambda: ask(server, name).status_code == 200)
    assert speaker(server, name) == f"{name}@1"
    assert states(server, name) == {1: "serving", 2: "failed"}
    assert "r1 step_16/m1 serves again" in status(server, name)["message"]


def test_without_auto_rollback_people_are_told_and_nothing_moves(rolled, build):
    server, name = rolled(**CANARY, auto_rollback=False)
    build.until(lambda: states(server, name).get(2) == "canary")
    (server.home / f"fail_{name}.r2").touch()
    for _ in range(3):
        assert ask(server, f"{name}@2").status_code == 502
    held = build.until(lambda: (d := status(server, name))["state"] == "held" and d)
    assert held["message"].startswith("r2 step_24/m1 keeps its share of the sessions: ")
    assert states(server, name)[2] == "canary"


def test_recreate_gives_the_old_memory_back_before_it_loads(rolled, build):
    server, name = rolled(type="recreate")
    build.until(lambda: states(server, name) == {1: "superseded", 2: "serving"})
    assert speaker(server, name) == f"{name}@2"
    assert ask(server, f"{name}@1").status_code == 404


def test_recreate_whose_probe_fails_serves_the_old_one_again(rolled, build):
    (server, name) = rolled(type="recreate")
    build.until(lambda: states(server, name) == {1: "superseded", 2: "serving"})
    (server.home / f"fail_{name}.r3").touch()
    document = server.resource(f"experiment/{name}")
    server.apply(name, build.experiment(name, steps=32, seed=f"{name}3"), etag=document["etag"])
    held = build.until(lambda: (d := status(server, name))["state"] == "held" and d)
    assert held["message"].endswith("r2 step_24/m1 serves again")
    build.until(lambda: ask(server, name).status_code == 200)
    assert speaker(server, name) == f"{name}@2"


def test_a_rollback_after_a_canary_moves_all_of_the_traffic_at_once(rolled, build):
    server, name = rolled(**{**CANARY, "watch": 0.5})
    build.until(lambda: states(server, name).get(2) == "serving")
    body = {"owner": {"stack": "team", "namespace": "main"}}
    assert server.http.post(f"/api/v1/deployments/{name}/rollback", json=body).status_code == 200
    build.until(lambda: states(server, name) == {1: "serving", 2: "superseded"})
    assert status(server, name)["hold"]["revision"] == 1
