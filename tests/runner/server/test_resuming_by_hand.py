"""`POST /experiments/{name}/resume`: a person lets a held run go on, from its last state; nothing else is started by it."""

import pytest
from person import asking

from arena_gitops.spec.job import FailureReason, ResumeState, RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server.services import resources, runs

EXP = Address("experiment", "exp")
TEAM = {"owner": {"stack": "team", "namespace": "main"}}
SAVED = ResumeState(iteration=2, files={}).model_dump(mode="json")


@pytest.fixture
def run_id(world, build):
    return resources.put(world, resources.Put(EXP, build.experiment(), None)).run.run_id


@pytest.fixture
def http(world):
    with asking(world) as client:
        yield client


@pytest.fixture
def resume(http, run_id):
    return lambda body=TEAM, name="exp": http.post(f"/api/v1/experiments/{name}/resume", json=body)


@pytest.fixture
def becomes(world, run_id):
    """The run as it comes to be: what is done with its rows."""

    def becomes(act):
        with world.store.write() as session:
            act(runs.get(session, run_id))

    return becomes


def failed(pair, saved=SAVED):
    pair.state.resume = saved
    runs.end(pair, RunState.FAILED, 0.0, reason=FailureReason.USER_CODE)


def out_of_time(pair):
    failed(pair)
    pair.run.max_runtime_s = 0.0


def test_a_run_that_somebody_stopped_goes_on(http, resume, run_id):
    assert http.post(f"/api/v1/runs/{run_id}/stop").json()["state"] == "stopped"
    run = resume().json()["run"]
    assert (run["run_id"], run["state"], run["message"]) == (run_id, "queued", "resumed by ada")


def test_a_failed_run_goes_on_from_its_last_state(resume, becomes):
    becomes(failed)
    assert resume().json()["run"]["state"] == "queued"


def test_a_stop_that_has_not_taken_effect_is_taken_back(http, resume, becomes, world, run_id):
    becomes(lambda pair: setattr(pair.state, "state", RunState.RUNNING))
    http.post(f"/api/v1/runs/{run_id}/stop")
    assert resume().json()["run"]["state"] == "running"
    with world.store.read() as session:
        assert runs.get(session, run_id).run.wanted == "run"


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda _pair: None, "not-held"),
        (lambda pair: runs.end(pair, RunState.COMPLETED, 0.0), "not-held"),
        (lambda pair: failed(pair, saved=None), "no-checkpoint"),
        (out_of_time, "budget"),
    ],
    ids=["queued", "completed", "nothing saved", "budget spent"],
)
def test_what_cannot_go_on_is_told_why(resume, becomes, act, code):
    becomes(act)
    answer = resume()
    assert (answer.status_code, answer.json()["code"]) == (409, code)


def test_only_its_own_stack_lets_it_go_on_and_only_while_it_is_there(resume, world):
    assert resume({"owner": {"stack": "rivals"}}).json()["code"] == "owned-by-other"
    assert resume(name="nobody").status_code == 404
    resources.retire(world, EXP, Owner(stack="team"), None)
    assert resume().status_code == 404


def test_who_shares_the_run_of_main_does_not_decide_for_it(resume, becomes, world, build):
    body = build.experiment().model_copy(update={"owner": Owner(stack="team", namespace="pr-1")})
    shared = resources.put(world, resources.Put(EXP, body, None)).run
    becomes(failed)
    answer = resume({"owner": {"stack": "team", "namespace": "pr-1"}})
    assert (answer.status_code, answer.json()["code"]) == (409, "run-of-others"), shared
