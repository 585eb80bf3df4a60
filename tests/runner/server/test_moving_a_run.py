"""Another place for a run at work: it stops where it is and is queued again there; nobody has to ask twice."""

import pytest

from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address
from arena_runner.server.services import resources, runs
from arena_runner.server.services.resources import Put

ADDRESS = Address("experiment", "exp")


def put(world, build, etag=None, **fields):
    body = build.experiment("exp")
    body = body.model_copy(update={"spec": {**body.spec, **fields}})
    return resources.put(world, Put(ADDRESS, body, etag))


def at_work(world, run_id):
    with world.store.write() as session:
        runs.get(session, run_id).state.state = RunState.RUNNING


def test_a_running_run_stops_and_goes_on_in_its_new_tier(world, build):
    made = put(world, build, tier="local")
    at_work(world, made.run.run_id)
    moved = put(world, build, etag=made.etag, tier="large")
    assert (moved.version, moved.run.run_id, moved.run.state) == (1, made.run.run_id, RunState.RUNNING)
    with world.store.write() as session:
        pair = runs.get(session, made.run.run_id)
        assert (pair.run.wanted, pair.run.tier) == ("stop", "local")
        runs.settle_stop(pair, world.clock())  # its worker has said that it stopped
        assert (pair.state.state, pair.run.tier, pair.run.wanted) == (RunState.QUEUED, "large", "run")
        assert pair.state.message == "moved to tier large"


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"priority": 5}, "the default tier, priority 5"), ({"region": "eu"}, "the default tier in eu")],
    ids=["priority", "region"],
)
def test_a_running_run_goes_back_into_the_queue_as_its_new_placement_says(world, build, fields, words):
    made = put(world, build)
    at_work(world, made.run.run_id)
    put(world, build, etag=made.etag, **fields)
    with world.store.write() as session:
        pair = runs.get(session, made.run.run_id)
        assert (pair.run.wanted, pair.run.stop_cause) == ("stop", "moved")
        runs.settle_stop(pair, world.clock())
        assert (pair.state.state, pair.state.message) == (RunState.QUEUED, f"moved to {words}")


def test_a_run_that_somebody_stops_meanwhile_stays_stopped(world, build):
    made = put(world, build, tier="local")
    at_work(world, made.run.run_id)
    put(world, build, etag=made.etag, tier="large")
    with world.store.write() as session:
        pair = runs.get(session, made.run.run_id)
        runs.stop(pair, "user", world.clock())
        runs.settle_stop(pair, world.clock())
        assert pair.state.state == RunState.STOPPED
