"""What happened to the platform, told from a plan."""

from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.plan.drift import drift
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.wire import Provenance


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
