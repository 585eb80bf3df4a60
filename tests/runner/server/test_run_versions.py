"""What a PUT of an experiment does to versions and runs, without any process."""

import pytest

from arena_gitops.spec.job import ResumeState, RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import resources, runs
from arena_runner.server.world import VERSION


@pytest.fixture
def put(world, build):
    """PUTs an experiment at whatever etag it has; gives the document."""
    etags = {}

    def put(name="exp", *, owner=None, budget=None, **script):
        body = build.experiment(name, **script)
        spec = {**body.spec, "budget": budget or {}}
        body = body.model_copy(update={"spec": spec, **({"owner": owner} if owner else {})})
        document = resources.put(world, resources.Put(Address("experiment", name), body, etags.get(name)))
        etags[name] = document.etag
        return document

    return put


@pytest.fixture
def pair(world):
    """Changes a run's rows as a worker or controller would."""

    def change(run_id, action):
        with world.store.write() as session:
            found = runs.get(session, run_id)
            action(found)
        return found

    return change


def complete(found):
    found.state.resume = ResumeState(iteration=2, files={}).model_dump(mode="json")
    runs.end(found, RunState.COMPLETED, 0.0)


def state_of(world, run_id):
    with world.store.read() as session:
        return RunState(runs.get(session, run_id).state.state)


def test_a_new_fingerprint_is_a_new_version_with_a_run_of_its_own(put):
    first, second = put(seed=1), put(seed=2)
    assert (first.version, second.version) == (1, 2)
    assert first.run.run_id != second.run.run_id


def test_the_old_versions_queued_run_is_stopped(world, put):
    first, _ = put(seed=1), put(seed=2)
    assert state_of(world, first.run.run_id) == RunState.STOPPED


def test_going_back_to_an_earlier_fingerprint_is_that_version_and_its_run_goes_on(world, put):
    first, _, back = put(seed=1), put(seed=2), put(seed=1)
    assert (back.version, back.run.run_id) == (1, first.run.run_id)
    assert state_of(world, first.run.run_id) == RunState.QUEUED


def test_a_change_of_metadata_changes_no_run(world, put, pair):
    first = put(seed=1)
    pair(first.run.run_id, complete)
    again = put(seed=1, budget={"note": "x"})
    assert (again.version, again.run.run_id, again.run.state) == (1, first.run.run_id, RunState.COMPLETED)


def test_an_equal_fingerprint_shares_a_completed_run(put, pair):
    first = put("one", seed=1)
    pair(first.run.run_id, complete)
    assert put("two", seed=1).run.run_id == first.run.run_id


@pytest.mark.parametrize("end", [RunState.FAILED, RunState.STOPPED])
def test_a_run_that_has_no_result_is_not_shared(put, pair, end):
    first = put("one", seed=1)
    pair(first.run.run_id, lambda found: runs.end(found, end, 0.0))
    assert put("two", seed=1).run.run_id != first.run.run_id


def test_a_shared_run_survives_the_retirement_of_one_of_its_experiments(world, put):
    put("one", seed=1)
    shared = put("two", seed=1).run.run_id
    for name, expected in (("one", RunState.QUEUED), ("two", RunState.STOPPED)):
        resources.retire(world, Address("experiment", name), Owner(stack="team"), None)
        assert state_of(world, shared) == expected


@pytest.mark.parametrize("end", [RunState.COMPLETED, RunState.STOPPED, RunState.FAILED])
def test_raised_max_steps_resume_an_ended_run(world, put, pair, end):
    first = put(seed=1, steps=16)
    pair(first.run.run_id, complete)
    pair(first.run.run_id, lambda found: runs.end(found, end, 0.0))
    raised = put(seed=1, steps=32)
    assert (raised.version, raised.run.run_id) == (1, first.run.run_id)
    assert (raised.run.state, raised.run.max_steps) == (RunState.QUEUED, 32)


def test_more_steps_take_back_a_stop_that_has_not_taken_effect(put, pair):
    """Else the worker's end at the old limit would be taken for the end of what was asked for last."""
    run_id = put(steps=16).run.run_id
    pair(run_id, lambda found: setattr(found.state, "state", RunState.RUNNING))
    pair(run_id, lambda found: runs.stop(found, "user", 0.0))
    put(steps=32)
    run = pair(run_id, lambda _: None).run
    assert (run.wanted, run.stop_cause, run.max_steps) == ("run", None, 32)


def test_lowered_max_steps_leave_a_completed_run_alone(put, pair):
    first = put(seed=1, steps=32)
    pair(first.run.run_id, complete)
    lowered = put(seed=1, steps=16)
    assert (lowered.run.state, lowered.run.max_steps) == (RunState.COMPLETED, 32)


def test_what_a_person_stopped_stays_stopped(world, put, pair):
    first = put(seed=1)
    pair(first.run.run_id, lambda found: runs.stop(found, "user", 0.0))
    assert put(seed=1).run.state == RunState.STOPPED


def test_a_failed_run_is_held(put, pair):
    first = put(seed=1)
    pair(first.run.run_id, lambda found: runs.end(found, RunState.FAILED, 0.0))
    assert put(seed=1).run.state == RunState.FAILED


def test_a_rerun_is_another_run_of_the_same_fingerprint(world, build, put):
    first = put(seed=1)
    body = build.experiment("exp", seed=1).model_copy(update={"rerun": 1})
    again = resources.put(world, resources.Put(Address("experiment", "exp"), body, first.etag))
    assert again.run.run_id != first.run.run_id
    assert again.run.fingerprint == first.run.fingerprint


def test_what_a_command_made_is_adopted_as_it_is_and_its_run_does_not_notice(world, build, put, pair):
    """Its version counts as what its new owner says; what is asked for afterwards is compared with that."""
    by_hand = put("exp", owner=Owner(stack="imperative"), seed=1)
    pair(by_hand.run.run_id, lambda found: setattr(found.state, "state", RunState.RUNNING))
    wanted = build.experiment("exp", seed=2).model_copy(update={"adopt": True})
    mine = resources.put(world, resources.Put(Address("experiment", "exp"), wanted, by_hand.etag))
    assert (mine.owner.stack, mine.version) == ("team", by_hand.version)
    assert mine.fingerprint == wanted.fingerprint != by_hand.fingerprint
    assert (mine.run.run_id, mine.run.state, mine.run.max_steps) == (by_hand.run.run_id, RunState.RUNNING, 16)

    again = wanted.model_copy(update={"adopt": False, "spec": {**wanted.spec, "description": "ours"}})
    after = resources.put(world, resources.Put(Address("experiment", "exp"), again, mine.etag))
    assert (after.version, after.run.run_id) == (mine.version, mine.run.run_id)


@pytest.mark.one_database
def test_an_ended_run_that_was_adopted_is_not_raised_by_a_later_edit(world, build, put, pair):
    by_hand = put("exp", owner=Owner(stack="imperative"))
    pair(by_hand.run.run_id, complete)
    budget = {"max_runtime_s": 60.0}
    wanted = build.experiment("exp", steps=64).model_copy(update={"adopt": True})
    wanted.spec["budget"] = budget
    mine = resources.put(world, resources.Put(Address("experiment", "exp"), wanted, by_hand.etag))
    again = wanted.model_copy(update={"adopt": False, "spec": {**wanted.spec, "description": "ours"}})
    after = resources.put(world, resources.Put(Address("experiment", "exp"), again, mine.etag))
    assert (after.run.run_id, after.run.state) == (by_hand.run.run_id, RunState.COMPLETED)


@pytest.mark.one_database
def test_only_what_commands_made_is_adopted(world, build, put):
    taken = put("exp", owner=Owner(stack="others"))
    body = build.experiment("exp").model_copy(update={"adopt": True})
    for name, etag, code in (("exp", taken.etag, "owned-by-other"), ("nothing", None, "stale")):
        with pytest.raises(RefusedError) as caught:
            resources.put(world, resources.Put(Address("experiment", name), body, etag))
        assert caught.value.code == code


KEEP_OLD = {"lifecycle": {"protect": False, "replace_policy": "keep_old"}}


@pytest.fixture
def again(world, build):
    """PUTs versions of one experiment, with what its file says beside the work."""
    etags = []

    def again(seed, *, begins=False, **spec):
        body = build.experiment("exp", seed=seed)
        body = body.model_copy(update={"spec": {**body.spec, **spec}})
        at = Address("experiment", "exp")
        document = resources.put(world, resources.Put(at, body, etags[-1] if etags else None))
        etags.append(document.etag)
        if begins:
            with world.store.write() as session:
                found = runs.get(session, document.run.run_id)
                found.state.state, found.state.segments = RunState.RUNNING, 1
        return document

    return again


def wanted(world, run_id):
    with world.store.read() as session:
        return runs.get(session, run_id).run.wanted


def test_under_keep_old_a_run_that_has_begun_goes_on_and_one_that_waits_does_not(world, again):
    working, waiting = again(1, begins=True), again(2, **KEEP_OLD)
    again(3, **KEEP_OLD)
    assert (wanted(world, working.run.run_id), state_of(world, waiting.run.run_id)) == (
        "run",
        RunState.STOPPED,
    )


def test_what_was_kept_once_stays_kept_and_what_comes_after_is_stopped(world, again):
    first = again(1, begins=True)
    second = again(2, begins=True, **KEEP_OLD)
    again(2, description="noted")
    assert (wanted(world, first.run.run_id), wanted(world, second.run.run_id)) == ("run", "run")
    again(3)
    assert (wanted(world, first.run.run_id), wanted(world, second.run.run_id)) == ("run", "stop")


def test_a_retired_experiment_has_nothing_at_work_any_more(world, again):
    first, second = again(1, begins=True), again(2, begins=True, **KEEP_OLD)
    resources.retire(world, Address("experiment", "exp"), Owner(stack="team"), None)
    assert {wanted(world, document.run.run_id) for document in (first, second)} == {"stop"}


def test_a_pinned_trainer_that_is_not_here_is_refused_for_new_runs_alone(world, again):
    with pytest.raises(RefusedError) as refused:
        again(1, trainer="99.1")
    assert (refused.value.status, refused.value.code) == (422, "trainer-not-here")
    assert again(1, trainer=".".join(VERSION.split(".")[:2])).version == 1
    assert again(1, trainer="99.1").version == 1, "nothing is started by it"
