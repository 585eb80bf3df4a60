"""Renames: the same thing under another name is not trained again."""

from dataclasses import replace

import pytest
from stacks import Stack, small

from arena_gitops.app import Consent, apply, plan
from arena_gitops.errors import PartialApplyError, PlatformRejectedError, Rejection
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.resource import Address

OLD, NEW = Address("experiment", "words-grpo"), Address("experiment", "words-new")


def renamed(**experiment):
    stack = Stack().project().dataset().reward().experiment("words-new", **experiment)
    return stack.deployment(experiment="words-new")


def actions(plan_):
    return {
        change.address: (change.action.value, change.reason) for change in plan_.changes if change.action.acts
    }


def in_one_file(stack, *addresses):
    """All of these declared by one file."""
    for address in addresses:
        found = stack.resources[address]
        provenance = found.provenance.model_copy(update={"path": "experiments/words.yaml"})
        stack.resources[address] = replace(found, provenance=provenance)
    return stack


@pytest.mark.parametrize(
    "runs", [RunScript.completes(), RunScript.stays_running(step=8), RunScript.stays_queued()]
)
def test_a_renamed_experiment_keeps_its_run_and_stops_nothing(scene, runs):
    here = scene(runs=runs).applied(small())
    before = here.document(small()).run
    planned = here.plan(renamed())
    assert actions(planned) == {
        str(NEW): ("move", "moved"),
        str(OLD): ("retire", "moved"),
        "deployment/words": ("update", "definition_changed"),
    }
    assert planned.interrupts == ()
    assert (planned.summary["move"], planned.summary["retire"], planned.cost.max_new) == (1, 0, 0)
    here.applied(renamed())
    assert here.document(renamed(), str(NEW)).run.model_copy(update={"experiment": "words-grpo"}) == before
    assert actions(here.plan(renamed())) == {}


def test_a_renamed_dataset_moves_and_its_experiments_are_only_updated(scene):
    after = Stack().project().dataset("sums").reward().experiment(dataset="sums").deployment()
    here = scene().applied(small())
    assert actions(here.plan(after)) == {
        "dataset/sums": ("move", "moved"),
        "dataset/words": ("retire", "moved"),
        str(OLD): ("update", "metadata_changed"),
    }


def test_two_equal_candidates_are_no_move(scene):
    after = renamed().experiment("words-other")
    found = actions(scene().applied(small()).plan(after))
    assert found[str(NEW)][0] == found["experiment/words-other"][0] == "reuse"
    assert found[str(OLD)] == ("retire", "removed_from_repo")


def test_what_was_declared_decides_between_candidates(scene):
    here, after = scene().applied(small()), renamed().experiment("words-other")
    state = replace(after.state(), moved={NEW: OLD})
    assert actions(plan(here.world, state, target="local"))[str(NEW)] == ("move", "moved")


def test_a_declared_rename_with_edits_is_trained_under_the_new_name(scene):
    here, after = scene().applied(small()), renamed(set={"algorithm.lr": 3e-5})
    change = next(
        c
        for c in plan(here.world, replace(after.state(), moved={NEW: OLD}), target="local").changes
        if c.at == NEW
    )
    assert (change.action, change.reason, change.previous_address) == ("create", "moved", str(OLD))
    assert change.message == "was experiment/words-grpo, and changed"


def test_a_rename_with_edits_that_nobody_declared_is_refused_with_what_to_write(scene):
    here = scene().applied(in_one_file(small(), OLD))
    after = in_one_file(renamed(set={"algorithm.lr": 3e-5}), NEW)
    change = here.change(after, str(NEW))
    assert (change.action, change.reason) == ("blocked", "rename_or_new")
    assert f"moved: [{{from: {OLD}, to: {NEW}}}]" in change.message
    declared = replace(after.state(), moved={NEW: OLD})
    assert plan(here.world, declared, target="local").applyable


def test_another_file_is_another_experiment(scene):
    after = renamed(set={"algorithm.lr": 3e-5})
    assert scene().applied(small()).plan(after).applyable


def test_a_failed_run_is_not_trained_again_for_a_new_name(scene):
    change = scene(runs=RunScript.fails(step=8)).applied(small()).change(renamed(), str(NEW))
    assert (change.action, change.reason) == ("blocked", "move_of_held_run")


def test_a_rename_does_not_shake_off_protection(scene):
    here = scene().applied(small(lifecycle={"protect": True}))
    assert here.change(renamed()).reason == "protected"
    assert here.change(renamed(lifecycle={"protect": True})).reason == "moved"


def test_a_move_that_was_done_stays_harmless_in_the_file(scene):
    here = scene().applied(small(), renamed())
    state = replace(renamed().state(), moved={NEW: OLD})
    assert actions(plan(here.world, state, target="local")) == {}


def test_the_old_name_stays_when_the_new_one_cannot_be_made(scene, monkeypatch):
    here = scene().applied(small())
    planned, put = here.plan(renamed()), here.platform.put

    def refuses(address, *args, **kwargs):
        if address == NEW:
            raise PlatformRejectedError(Rejection(status=422, code="no", message="no"))
        return put(address, *args, **kwargs)

    monkeypatch.setattr(here.platform, "put", refuses)
    with pytest.raises(PartialApplyError) as caught:
        apply(here.world, planned, renamed().state(), Consent.APPROVED)
    assert {step.address for step in caught.value.failed} == {str(NEW), str(OLD), "deployment/words"}
    assert OLD in here.platform.observe(small().owner).resources
