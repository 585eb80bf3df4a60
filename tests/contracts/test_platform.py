"""What every platform keeps, said once and run against each of them (see `platforms.base`)."""

from dataclasses import replace

import pytest
from puts import DATASET, DEPLOYMENT, EXPERIMENT, REWARD, body, put, put_experiment, usual, waiting
from stacks import ROWS

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.errors import (
    BlockedError,
    PlatformRejectedError,
    StaleError,
)
from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address


def test_a_new_stack_owns_nothing_and_looking_changes_nothing(platform, stack):
    assert platform.observe(stack.owner).resources == {}
    assert platform.observe(stack.owner) == platform.observe(stack.owner)


def test_what_was_put_is_observed(platform, stack):
    document = put(platform, stack.reward(), REWARD)
    resource = stack.resources[REWARD]
    seen = platform.observe(stack.owner).resources
    assert seen == {REWARD: document}
    assert document.spec == resource.spec
    assert document.fingerprint == resource.fingerprint
    assert document.provenance == resource.provenance
    assert (document.owner, document.version) == (stack.owner, 1)


def test_what_must_be_new_may_not_exist(platform, stack):
    put(platform, stack.reward(), REWARD)
    with pytest.raises(StaleError):
        put(platform, stack, REWARD, key="another key")


def test_a_write_over_another_state_is_refused_and_changes_nothing(platform, stack):
    document = put(platform, stack.reward(), REWARD)
    stack.reward(description="newer")
    with pytest.raises(StaleError):
        put(platform, stack, REWARD, etag="no such state")
    assert platform.observe(stack.owner).resources[REWARD] == document


def test_what_is_gone_cannot_be_changed(platform, stack):
    with pytest.raises(StaleError):
        put(platform, stack.reward(), REWARD, etag="1.1")


def test_every_write_moves_the_etag(platform, stack):
    first = put(platform, stack.reward(), REWARD)
    second = put(platform, stack.reward(description="newer"), REWARD, etag=first.etag)
    assert second.etag != first.etag
    assert second.spec["description"] == "newer"


def test_a_repeated_request_gives_the_same_answer(platform, stack, unique):
    usual(stack, unique)
    first = put_experiment(platform, stack, key=f"key of {stack.name}")
    assert put_experiment(platform, stack, key=f"key of {stack.name}") == first


def test_a_key_is_not_used_for_two_bodies(platform, stack):
    put(platform, stack.reward(), REWARD, key=f"key of {stack.name}")
    with pytest.raises(PlatformRejectedError):
        put(platform, stack.reward(description="other"), REWARD, key=f"key of {stack.name}")


def test_nobody_takes_a_name_from_another_stack(platform, stack):
    mine = put(platform, stack.reward(), REWARD)
    other = replace(stack, name="others")
    with pytest.raises(BlockedError, match=stack.name):
        put(platform, other, REWARD)
    with pytest.raises(BlockedError, match=stack.name):
        platform.retire(REWARD, other.owner, etag=mine.etag)
    assert platform.observe(other.owner).foreign == {REWARD: stack.name}
    assert platform.observe(stack.owner).foreign == {}


def test_a_namespace_is_a_world_of_its_own(platform, stack):
    put(platform, stack.reward(), REWARD)
    preview = replace(stack, namespace=f"preview-of-{stack.namespace}")
    assert platform.observe(preview.owner).resources == {}
    put(platform, preview, REWARD)


def test_a_preview_retires_nothing_of_main(platform, stack):
    mine = put(platform, stack.reward(), REWARD)
    preview = replace(stack, namespace=f"preview-of-{stack.namespace}")
    platform.retire(REWARD, preview.owner, etag=None)
    assert platform.observe(stack.owner).resources == {REWARD: mine}


@pytest.mark.parametrize("other", ["preview", "stack"])
def test_the_run_of_others_is_used_and_left_as_it_is(platform, stack, unique, other):
    first = put_experiment(platform, usual(stack, unique))
    guest = replace(stack, namespace=f"{other}-of-{stack.namespace}"[:60])
    guest = replace(guest, name="others") if other == "stack" else guest
    same = put_experiment(platform, guest)
    assert same.run.run_id == first.run.run_id

    longer = put_experiment(platform, usual(guest, unique, set={"training.max_steps": 2000}), etag=same.etag)
    assert longer.run.run_id != first.run.run_id
    assert longer.run.max_steps == 2000
    assert platform.observe(stack.owner).resources[EXPERIMENT].run.max_steps == 1000

    again = put_experiment(platform, usual(guest, unique, set={"training.max_steps": 3000}), etag=longer.etag)
    assert (again.run.run_id, again.run.max_steps) == (longer.run.run_id, 3000)


def test_main_lengthens_what_its_preview_has_begun(platform, stack, unique):
    preview = replace(usual(stack, unique), namespace=f"preview-of-{stack.namespace}"[:60])
    begun = put_experiment(platform, preview)
    main = replace(stack, namespace="main")
    longer = put_experiment(platform, usual(main, unique, set={"training.max_steps": 2000}))
    assert (longer.run.run_id, longer.run.max_steps) == (begun.run.run_id, 2000)


def test_a_file_is_missing_until_it_is_uploaded(platform, stack):
    rows = f"{ROWS}for,{stack.name}\n"
    (blob,) = stack.dataset(rows=rows).resources[DATASET].blobs
    assert platform.missing_blobs([blob.digest]) == {blob.digest}
    gives_back = platform.name != "arena_cloud"
    assert platform.unsound_blobs([blob.digest]) == ({blob.digest: "absent"} if gives_back else {})
    platform.upload(blob)
    platform.upload(blob)
    assert platform.missing_blobs([blob.digest]) == frozenset()
    assert platform.unsound_blobs([blob.digest]) == {}


def test_bytes_must_hash_to_their_name(platform, stack):
    (blob,) = stack.dataset(rows=f"{ROWS}not for,{stack.name}\n").resources[DATASET].blobs
    with pytest.raises(PlatformRejectedError):
        platform.upload(replace(blob, data=b"else", size=4))
    assert platform.missing_blobs([blob.digest]) == {blob.digest}


def test_an_experiment_needs_its_files(platform, stack, unique):
    stack.dataset(rows=f"{ROWS}never,{stack.name}\n").reward().experiment(set=unique)
    with pytest.raises(PlatformRejectedError):
        put(platform, stack, EXPERIMENT)
    assert platform.observe(stack.owner).resources == {}


def test_a_spec_of_another_shape_is_refused(platform, stack, unique):
    usual(stack, unique, surprise=1)
    with pytest.raises(PlatformRejectedError, match="surprise"):
        put_experiment(platform, stack)


def test_an_experiment_has_a_run(platform, stack, unique):
    document = put_experiment(platform, usual(stack, unique))
    assert document.run is not None
    assert document.run.max_steps == 1000
    assert document.run.fingerprint == stack.resources[EXPERIMENT].fingerprint.run
    assert platform.run_status(document.run.run_id).run_id == document.run.run_id
    assert list(platform.run_events(document.run.run_id)) == []


def test_there_is_no_unknown_run(platform):
    with pytest.raises(PlatformRejectedError) as refusal:
        platform.run_status("r_none")
    assert refusal.value.rejection.status == 404
    with pytest.raises(PlatformRejectedError):
        list(platform.run_events("r_none"))


def test_a_raised_rerun_is_another_run_of_the_same_work(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    raised = body(stack.experiment(set=unique, rerun=1), EXPERIMENT).model_copy(update={"rerun": 1})
    again = platform.put(EXPERIMENT, raised, etag=first.etag, idempotency_key=f"rerun of {stack.name}")
    assert again.run.run_id != first.run.run_id
    assert (again.version, again.run.fingerprint) == (2, first.run.fingerprint)
    known = platform.observe(stack.owner).runs
    assert known[first.run.fingerprint, 1].run_id == again.run.run_id


def test_a_renamed_experiment_keeps_its_run_going(platform, stack, unique):
    old = put_experiment(platform, usual(stack, unique))
    new = put(platform, stack.experiment("renamed", set=unique), Address("experiment", "renamed"))
    platform.retire(EXPERIMENT, stack.owner, etag=old.etag)
    assert (new.run.run_id, new.version) == (old.run.run_id, 1)
    assert platform.run_status(new.run.run_id).state is RunState.QUEUED


def test_equal_work_is_one_run(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    stack.experiment("words-again", set=unique)
    again = put(platform, stack, Address("experiment", "words-again"))
    assert again.run.run_id == first.run.run_id
    known = platform.observe(stack.owner).runs[first.run.fingerprint, 0]
    assert (known.run_id, known.experiment, known.version) == (first.run.run_id, "words-grpo", 1)


def test_metadata_touches_neither_run_nor_version(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    second = put_experiment(platform, usual(stack, unique, description="newer"), etag=first.etag)
    assert (second.version, waiting(second)) == (first.version, waiting(first))


def test_other_work_is_a_new_version_and_stops_the_old_run(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    second = put_experiment(platform, usual(stack, unique, set={"algorithm.lr": 3e-5}), etag=first.etag)
    assert second.version == 2
    assert second.run.run_id != first.run.run_id
    assert platform.run_status(first.run.run_id).state is RunState.STOPPED


def test_going_back_is_the_earlier_version_and_its_run(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    second = put_experiment(platform, usual(stack, unique, set={"algorithm.lr": 3e-5}), etag=first.etag)
    third = put_experiment(platform, usual(stack, unique), etag=second.etag)
    assert (third.version, third.run.run_id) == (1, first.run.run_id)
    assert third.run.state is RunState.QUEUED


def test_going_back_is_a_decision_to_train_what_somebody_had_stopped(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    platform.stop_run(first.run.run_id)
    second = put_experiment(platform, usual(stack, unique, set={"algorithm.lr": 3e-5}), etag=first.etag)
    third = put_experiment(platform, usual(stack, unique), etag=second.etag)
    assert (third.run.run_id, third.run.state) == (first.run.run_id, RunState.QUEUED)


def test_going_back_takes_an_equal_run_that_others_have_made_since(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    platform.stop_run(first.run.run_id)
    stack.experiment("words-again", set=unique)
    again = put(platform, stack, Address("experiment", "words-again"))
    assert again.run.run_id != first.run.run_id
    second = put_experiment(platform, usual(stack, unique, set={"algorithm.lr": 3e-5}), etag=first.etag)
    third = put_experiment(platform, usual(stack, unique), etag=second.etag)
    assert (third.version, third.run.run_id) == (1, again.run.run_id)


def test_versions_of_a_reward_follow_its_content(platform, stack):
    first = put(platform, stack.reward(), REWARD)
    second = put(platform, stack.reward(source="def reward(q, a, c):\n    return 0.0\n"), REWARD, first.etag)
    third = put(platform, stack.reward(description="as before"), REWARD, second.etag)
    assert [first.version, second.version, third.version] == [1, 2, 1]


def test_a_run_that_was_stopped_stays_stopped(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    assert platform.stop_run(first.run.run_id).state is RunState.STOPPED
    assert platform.stop_run(first.run.run_id).state is RunState.STOPPED
    second = put_experiment(platform, usual(stack, unique, description="newer"), etag=first.etag)
    assert second.run.state is RunState.STOPPED


def test_the_progress_of_a_run_does_not_move_the_etag(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique))
    platform.stop_run(first.run.run_id)
    assert platform.observe(stack.owner).resources[EXPERIMENT].etag == first.etag


@pytest.mark.parametrize(
    "more",
    [
        {"set": {"training.max_steps": 2000}},
        {"tier": "local"},
        {"budget": {"max_runtime_s": 7200.0}},
        {"set": {"training.target_score": 0.9}},
    ],
    ids=["steps", "tier", "time", "target"],
)
def test_a_stopped_run_goes_on_with_more(platform, stack, unique, more):
    asked = {"budget": {"max_runtime_s": 3600.0}, "set": {"training.target_score": 0.5}}
    first = put_experiment(platform, usual(stack, unique, **asked))
    platform.stop_run(first.run.run_id)
    changed = {**asked, **more, "set": {**asked["set"], **more.get("set", {})}}
    second = put_experiment(platform, usual(stack, unique, **changed), etag=first.etag)
    assert (second.run.run_id, second.run.state) == (first.run.run_id, RunState.QUEUED)
    assert second.version == 1


def test_a_stopped_run_does_not_go_on_with_less(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique, set={"training.target_score": 0.5}))
    platform.stop_run(first.run.run_id)
    less = {"training.target_score": 0.4, "training.max_steps": 500}
    second = put_experiment(platform, usual(stack, unique, set=less), etag=first.etag)
    assert second.run.state is RunState.STOPPED


def test_what_is_retired_is_gone_and_its_run_is_stopped(platform, stack, unique):
    document = put_experiment(platform, usual(stack, unique))
    platform.retire(EXPERIMENT, stack.owner, etag=document.etag)
    platform.retire(EXPERIMENT, stack.owner, etag=document.etag)
    assert EXPERIMENT not in platform.observe(stack.owner).resources
    assert platform.run_status(document.run.run_id).state is RunState.STOPPED


def test_only_the_state_that_was_seen_is_retired(platform, stack):
    document = put(platform, stack.reward(), REWARD)
    with pytest.raises(StaleError):
        platform.retire(REWARD, stack.owner, etag="no such state")
    assert platform.observe(stack.owner).resources == {REWARD: document}


def test_what_was_retired_returns_with_its_run_even_by_the_same_request(platform, stack, unique):
    """The write of a first apply and that of a revert look the same; the second must not be taken for a repeat."""
    usual(stack, unique)
    first = put_experiment(platform, stack)
    platform.retire(EXPERIMENT, stack.owner, etag=first.etag)
    second = put_experiment(platform, stack)
    (seen,) = platform.observe(stack.owner).resources.values()
    assert (seen.etag, waiting(seen)) == (second.etag, waiting(second))
    assert (second.version, second.run.run_id) == (1, first.run.run_id)
    assert second.run.state is RunState.QUEUED


def test_what_is_purged_is_gone_for_good(platform, stack, unique):
    """Its files too, unless something else uses them; made anew it is trained anew."""
    usual(stack, unique).dataset(rows=f"{ROWS}{unique},#### 1\n").experiment(set=unique)
    rows = stack.resources[DATASET].spec["digest"]
    first = put_experiment(platform, stack)
    data = put(platform, stack, DATASET)
    platform.retire(EXPERIMENT, stack.owner, etag=first.etag, purge=True)
    platform.retire(EXPERIMENT, stack.owner, etag=first.etag, purge=True)
    assert platform.missing_blobs([rows]) == frozenset()
    platform.retire(DATASET, stack.owner, etag=data.etag, purge=True)
    assert platform.missing_blobs([rows]) == {rows}
    assert platform.observe(stack.owner).resources == {}
    second = put_experiment(platform, stack)
    assert second.run.run_id != first.run.run_id
    assert second.run.state is RunState.QUEUED


def test_a_run_that_another_experiment_shares_outlives_a_purge(platform, stack, unique):
    first = put_experiment(platform, usual(stack, unique).experiment("twin", set=unique))
    twin = put(platform, stack, Address("experiment", "twin"))
    assert twin.run.run_id == first.run.run_id
    platform.retire(EXPERIMENT, stack.owner, etag=first.etag, purge=True)
    assert platform.run_status(twin.run.run_id).state is RunState.QUEUED


def test_a_deployment_waits_for_the_run_it_follows(platform, stack, unique):
    put_experiment(platform, usual(stack, unique).deployment())
    document = put(platform, stack, DEPLOYMENT)
    assert document.deployment.state == "pending"
    assert document.deployment.revision == 0


def test_a_retired_deployment_is_gone(platform, stack, unique):
    put_experiment(platform, usual(stack, unique).deployment())
    document = put(platform, stack, DEPLOYMENT)
    platform.retire(DEPLOYMENT, stack.owner, etag=document.etag)
    assert DEPLOYMENT not in platform.observe(stack.owner).resources


def test_a_plan_that_was_applied_is_empty_afterwards(platform, stack, unique):
    desired = usual(stack, unique).deployment().state()
    world = World(platform)
    apply(world, plan(world, desired, target="prod"), desired, Consent.APPROVED)
    again = plan(world, desired, target="prod")
    assert not again.has_changes
    assert again.summary["unchanged"] == 4


def test_a_stored_file_can_be_read_again_within_a_limit(platform, stack):
    (blob,) = stack.reward().resources[REWARD].blobs
    assert platform.read_blob(sha256_bytes(b"nobody has this"), limit=1000) is None
    platform.upload(blob)
    assert platform.read_blob(blob.digest, limit=blob.size) == blob.data
    assert platform.read_blob(blob.digest, limit=blob.size - 1) is None
