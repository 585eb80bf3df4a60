"""A purge deletes what nothing else uses, when no worker is at it any more, and keeps what is counted."""

import pytest

from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server.services import purging, resources, runs
from arena_runner.server.store.tables import CheckpointRow

OWNER = Owner(stack="team")


class Place:
    """A world in which experiments are put, and end as told."""

    def __init__(self, world, build):
        self.world, self.build = world, build

    def put(self, name="exp", *, rows=None, **script):
        body = self.build.experiment(name, **script)
        if rows is not None:
            columns = {"question": "q", "answer": "a"}
            dataset = {"category": "reasoning", "column_mapping": columns, "digest": rows, "format": "csv"}
            body.spec["inputs"] = {"dataset": {"address": "dataset/words", **dataset}}
        return resources.put(self.world, resources.Put(Address("experiment", name), body, None))

    def end(self, run_id):
        """It has one checkpoint, whose file is a blob."""
        digest = self.world.blobs.put(f"weights of {run_id}".encode())
        with self.world.store.write() as session:
            pair = runs.get(session, run_id)
            row = CheckpointRow(run_id=run_id, step=4, member=0, generation=0, fitness=0.5, digest=digest)
            row.files, row.size_bytes, row.hyperparameters, row.position = {"a": digest}, 9, {}, 1
            session.add(row)
            runs.end(pair, RunState.COMPLETED, 0.0)
            pair.state.spent_credits = 2.5
        folder = self.world.home.run(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log").write_text("x")
        return digest

    def purge(self, name="exp", kind="experiment"):
        resources.retire(self.world, Address(kind, name), OWNER, None, purge=True)

    def status(self, run_id):
        with self.world.store.read() as session:
            return runs.status(session, self.world, run_id), runs.get(session, run_id)


@pytest.fixture
def place(world, build):
    return Place(world, build)


def test_a_result_and_its_files_are_gone_and_its_cost_is_not(place):
    made = place.put()
    weights = place.end(made.run.run_id)
    place.purge()
    status, pair = place.status(made.run.run_id)
    assert not place.world.blobs.has(weights)
    assert not place.world.home.run(made.run.run_id).exists()
    assert (status.checkpoints, status.message) == ((), "its data was purged")
    assert pair.state.spent_credits == 2.5


@pytest.mark.one_database
def test_what_is_made_anew_is_trained_anew_under_the_next_number(place):
    made = place.put()
    place.end(made.run.run_id)
    place.purge()
    again = place.put()
    assert again.run.run_id != made.run.run_id
    assert again.version == 2


@pytest.mark.one_database
def test_a_run_that_another_experiment_shares_stays(place):
    made = place.put()
    twin = place.put("twin")
    assert twin.run.run_id == made.run.run_id
    weights = place.end(made.run.run_id)
    place.purge()
    assert place.world.blobs.has(weights)
    place.purge("twin")
    assert not place.world.blobs.has(weights)


@pytest.mark.one_database
def test_a_running_run_is_deleted_once_it_has_ended(place):
    made = place.put()
    run_id = made.run.run_id
    with place.world.store.write() as session:
        runs.get(session, run_id).state.state = RunState.RUNNING
    place.purge()
    status, pair = place.status(run_id)
    assert (status.state, pair.run.wanted) == (RunState.RUNNING, "stop")
    purging.collect(place.world)
    assert pair.run.inputs
    weights = place.end(run_id)
    purging.collect(place.world)
    assert not place.world.blobs.has(weights)
    assert place.status(run_id)[1].run.inputs == {}


def test_a_file_that_something_else_names_stays(place):
    rows, loose = place.world.blobs.put(b"q,a\n1+1?,2\n"), place.world.blobs.put(b"on its way")
    place.put(rows=rows, seed=1)
    place.put("other", rows=rows, seed=2)
    place.purge()
    assert place.world.blobs.has(rows)
    place.purge("other")
    assert not place.world.blobs.has(rows)
    assert place.world.blobs.has(loose)


@pytest.mark.one_database
def test_a_purged_deployment_keeps_its_number_only(place):
    made = place.put()
    place.end(made.run.run_id)
    body = place.build.deployment("exp")
    resources.put(place.world, resources.Put(Address("deployment", "served"), body, None))
    place.purge("served", "deployment")
    again = resources.put(place.world, resources.Put(Address("deployment", "served"), body, None))
    assert (again.version, again.deployment.state) == (2, "pending")
