"""What happened to the platform, told from a plan."""

from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.plan.cosmetic import trained_rows
from arena_gitops.plan.drift import drift, stored_files
from arena_gitops.plan.wording import held
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.digest import digests_in
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import AliasChoice, Provenance


@pytest.fixture
def drifted(scene):
    def drifted(before, after, **platform):
        here = scene(**platform).applied(*before)
        found = drift(here.plan(after), after.state(), here.platform.observe(after.owner))
        return {entry.address: (entry.code, entry.message) for entry in found.entries}

    return drifted


def test_what_was_applied_and_ran_through_has_not_drifted(drifted):
    assert drifted([small()], small()) == {}


def test_a_run_in_flight_is_no_drift(drifted):
    assert drifted([small()], small(), runs=RunScript.stays_running(step=8)) == {}


def test_a_failed_run_is_drift(drifted):
    found = drifted([small()], small(), runs=RunScript.fails("no disk", step=8))
    assert found["experiment/words-grpo"][0] == "run_failed"
    assert "no disk" in found["experiment/words-grpo"][1]


def test_a_run_stopped_by_hand_is_drift(scene):
    here = scene(runs=RunScript.stays_running(step=8)).applied(small())
    here.platform.stop_run(here.run(small()))
    found = drift(here.plan(small()), small().state(), here.platform.observe(small().owner))
    assert [(e.address, e.code) for e in found.entries] == [("experiment/words-grpo", "run_stopped")]


def test_what_is_gone_or_left_over_is_drift(drifted):
    assert drifted([small().without("deployment/words")], small())["deployment/words"][0] == "missing"
    found = drifted([small()], small().without("deployment/words"))
    assert found["deployment/words"][0] == "not_in_repository"


def test_a_difference_names_the_fields_and_the_commit_it_was_applied_from(scene):
    here = scene().applied(small(description="as it was"))
    after = small(description="as it is")
    state = replace(after.state(), provenance=Provenance(commit="f" * 40))
    found = drift(here.plan(after), state, here.platform.observe(after.owner))
    (entry,) = found.entries
    assert entry.message == "differs in description; last applied from 0123456789ab"


def seen(here, stack):
    observed = here.platform.observe(stack.owner)
    return drift(
        here.plan(stack), stack.state(), observed, here.platform.unsound_blobs(stored_files(observed))
    )


def test_a_file_that_the_platform_has_lost_is_a_matter_of_integrity(scene):
    here = scene().applied(small())
    (rows,) = digests_in(trained_rows(here.document(small(), "dataset/words").spec))
    assert rows in stored_files(here.platform.observe(small().owner))
    del here.platform._blobs[rows]
    found = seen(here, small())
    assert found.status == "drifted"
    assert [(e.address, e.code) for e in found.entries] == [
        ("dataset/words", "integrity"),
        ("experiment/words-grpo", "integrity"),
    ]
    assert "does not have" in found.entries[0].message


def test_a_file_whose_bytes_are_others_by_now_is_one_too(scene):
    here = scene().applied(small())
    assert seen(here, small()).status == "clean"
    (code,) = here.document(small(), "reward/exact").spec["files"].values()
    here.platform._blobs[code] += b" "
    assert {(e.address, e.code) for e in seen(here, small()).entries} == {
        ("reward/exact", "integrity"),
        ("experiment/words-grpo", "integrity"),
    }
    assert "which it was stored with, are others by now" in seen(here, small()).entries[0].message


def test_what_could_not_be_looked_at_is_neither_drift_nor_none(scene):
    here = scene().applied(small(), small().deployment(checkpoint="@champion"))
    stack = small().deployment(checkpoint="@champion")
    observed = here.platform.observe(stack.owner)
    at = Address.parse("deployment/words")
    choice = AliasChoice(alias="champion", known=False, message="MLflow does not answer")
    status = observed.resources[at].deployment.model_copy(update={"choice": choice})
    document = observed.resources[at].model_copy(update={"deployment": status})
    unseen = replace(observed, resources={**observed.resources, at: document})
    found = drift(here.plan(stack), stack.state(), unseen)
    assert (found.status, found.entries) == ("errored", ())
    assert [(e.address, e.code, e.message) for e in found.errors] == [
        ("deployment/words", "unknown", "MLflow does not answer")
    ]


def test_it_is_said_who_stopped_a_run_and_when():
    run = RunStatus(
        run_id="r", experiment="e", fingerprint="f", state="stopped", max_steps=9, stopped_by="ana", ended=0.0
    )
    assert held(run) == "its run was stopped by ana at step 0 of 9 (1970-01-01 00:00 UTC)"
