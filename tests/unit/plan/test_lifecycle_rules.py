"""What an experiment says about changes to itself: more severe, beside the old run, alone, pinned, left alone."""

import pytest
from stacks import Stack, small

from arena_gitops.plan.model import Action
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report import text
from arena_gitops.spec.lifecycle import field_class
from arena_gitops.spec.on_change import distinct_of, stored_path
from arena_gitops.spec.resource import Address

COMMIT, OTHER = "a" * 40, "b" * 40
STRICT = {"lifecycle": {"protect": False, "on_change": {"training.max_steps": "new_version"}}}
KEEP_OLD = {"lifecycle": {"protect": False, "replace_policy": "keep_old"}}


def steps(number, *, strict=True, **fields):
    """An experiment of so many steps, with `distinct` as the loader would have made it."""
    named = {"training.max_steps": number}
    more = {**STRICT, "distinct": named} if strict else {}
    return small(set=named, **more, **fields)


def lr(value, **fields):
    return small(set={"algorithm.lr": value}, **fields)


def pinned(revision, **fields):
    return small(model={"id": "org/tiny", "revision": revision}, **fields)


# --- on_change ---------------------------------------------------------------------------------------------------


def test_a_named_budget_is_trained_anew_and_a_revert_is_free(scene):
    here = scene().applied(steps(1000))
    change = here.change(steps(2000))
    assert (change.action, change.reason) == (Action.NEW_VERSION, "semantic_change")
    (field,) = change.fields
    assert (field.path, field.cls) == ("manifest.training.max_steps", "semantic")
    here.applied(steps(2000))
    assert here.document(small()).version == 2
    revert = here.change(steps(1000))
    assert (revert.action, revert.cost.max) == (Action.REUSE, 0.0)


def test_to_name_a_field_or_to_take_it_out_again_trains_nothing(scene):
    here = scene().applied(steps(1000, strict=False))
    assert here.change(steps(1000)).action is Action.UPDATE
    here.applied(steps(1000))
    assert not here.plan(steps(1000)).has_changes
    assert here.change(steps(2000)).action is Action.NEW_VERSION
    here.applied(steps(2000))
    assert here.change(steps(2000, strict=False)).action is Action.UPDATE
    here.applied(steps(2000, strict=False))
    assert here.change(steps(3000, strict=False)).action is Action.RESUME


def test_names_are_those_of_the_manifest_or_of_the_experiment():
    spec = {"tier": "big", "budget": {"max_runtime_s": 60.0}, "manifest": {"training": {"evo_steps": 5}}}
    named = ["tier", "budget.max_runtime", "training.evo_steps"]
    assert distinct_of(spec, named) == {"tier": "big", "budget.max_runtime": 60.0, "training.evo_steps": 5}
    assert field_class("experiment", stored_path("training.evo_steps")) == "semantic"
    with pytest.raises(KeyError):
        distinct_of(spec, ["training.evo_stepz"])


# --- replace_policy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "state"), [({}, "stopped"), (KEEP_OLD, "running")], ids=["stop", "keep"])
def test_a_run_at_work_is_stopped_by_a_new_version_or_comes_to_its_end(scene, fields, state):
    here = scene(runs=RunScript.stays_running(step=10)).applied(lr(1e-5, **fields))
    old = here.run(small())
    plan = here.plan(lr(3e-5, **fields))
    assert [bool(c.interrupts) for c in plan.changes if c.action is Action.NEW_VERSION] == [
        state == "stopped"
    ]
    assert ("goes on beside it" in text.render(plan)) is (state == "running")
    here.applied(lr(3e-5, **fields))
    assert here.run(small()) != old
    assert here.platform.run_status(old).state == state


def test_what_has_not_begun_is_cancelled_also_where_old_runs_are_kept(scene):
    here = scene(runs=RunScript.stays_queued()).applied(lr(1e-5, **KEEP_OLD))
    old = here.run(small())
    here.applied(lr(3e-5, **KEEP_OLD))
    assert here.platform.run_status(old).state == "stopped"


def test_to_retire_an_experiment_ends_what_was_kept_beside_it(scene):
    here = scene(runs=RunScript.stays_running(step=10)).applied(lr(1e-5, **KEEP_OLD))
    old = here.run(small())
    here.applied(lr(3e-5, **KEEP_OLD))
    new = here.run(small())
    at, etag = Address("experiment", "words-grpo"), here.document(small()).etag
    here.platform.retire(at, small().owner, etag=etag)
    assert {here.platform.run_status(run).state for run in (old, new)} == {"stopped"}


# --- reuse -------------------------------------------------------------------------------------------------------


def two(second, **fields):
    return small().experiment(second, **fields)


def test_reuse_false_trains_what_somebody_has_trained(scene):
    here = scene().applied(small())
    assert here.change(two("again"), "experiment/again").action is Action.REUSE
    alone = here.change(two("again", reuse=False), "experiment/again")
    assert alone.action is Action.CREATE
    assert any("reuse: false" in note for note in alone.notes)
    here.applied(two("again", reuse=False))
    runs = {here.document(small(), f"experiment/{name}").run.run_id for name in ("words-grpo", "again")}
    assert len(runs) == 2
    assert not here.plan(two("again", reuse=False)).has_changes


def test_alike_and_all_alone_each_has_a_run(scene):
    stack = small(reuse=False).experiment("b", reuse=False).experiment("c", reuse=False).experiment("d")
    here = scene().applied(stack)
    assert len(here.platform.observe(stack.owner).runs) == 4
    assert not here.plan(stack).has_changes


def test_a_revert_with_reuse_false_is_trained_and_a_rename_is_not(scene):
    here = scene().applied(lr(1e-5, reuse=False), lr(3e-5, reuse=False))
    assert here.change(lr(1e-5, reuse=False)).action is Action.NEW_VERSION
    renamed = (
        Stack().project().dataset().reward().experiment("other", set={"algorithm.lr": 3e-5}, reuse=False)
    )
    assert here.change(renamed.deployment(experiment="other"), "experiment/other").action is Action.MOVE


def test_saying_so_of_what_is_trained_already_is_metadata(scene):
    here = scene().applied(small())
    assert here.change(small(reuse=False)).action is Action.UPDATE


# --- pins --------------------------------------------------------------------------------------------------------


def test_a_base_model_is_pinned_to_what_it_was_for_nothing_and_to_another_for_a_new_version(scene):
    here = scene(revisions={"org/tiny": COMMIT}).applied(pinned(None))
    assert here.document(small()).run.model.revision == COMMIT
    assert not here.plan(pinned(COMMIT)).has_changes
    assert here.change(pinned(OTHER)).action is Action.NEW_VERSION
    here.applied(pinned(OTHER))
    assert not here.plan(pinned(None)).has_changes, "to take a pin out trains nothing"


def test_a_run_keeps_to_the_model_it_has_begun_with(scene):
    moving = {"org/tiny": COMMIT}
    here = scene(revisions=moving).applied(pinned(None, set={"training.max_steps": 500}))
    moving["org/tiny"] = OTHER
    here.applied(pinned(None, set={"training.max_steps": 900}))
    assert here.document(small()).run.model.revision == COMMIT


def test_a_pin_of_the_trainer_that_has_trained_it_changes_nothing(scene):
    here = scene(trainer="0.3.1").applied(small())
    assert here.document(small()).run.trainer == "0.3.1"
    for pin in ("0.3", "0.3.1"):
        assert not here.plan(small(trainer=pin)).has_changes


def test_an_upgrade_trains_nothing_and_a_pin_keeps_the_next_version_from_it(scene):
    here = scene(trainer="0.3.1").applied(small(trainer="0.3"))
    here.platform._trainer = here.platform._ledger.trainer = "0.4.0"
    assert not here.plan(small(trainer="0.3")).has_changes
    assert here.change(small(trainer="0.3", description="noted")).action is Action.UPDATE
    blocked = here.change(lr(3e-5, trainer="0.3"))
    assert (blocked.action, blocked.reason) == (Action.BLOCKED, "trainer_not_here")
    assert here.change(small(trainer="0.4")).action is Action.NEW_VERSION
    assert not here.plan(small()).has_changes, "to take the pin out trains nothing"


# --- left to the platform, and metadata --------------------------------------------------------------------------


def test_what_is_left_to_the_platform_is_written_once(scene):
    left = {"lifecycle": {"protect": False, "ignore_remote_changes": ["description", "tier"]}}
    here = scene().applied(small(description="first", **left))
    assert not here.plan(small(description="second", tier="other", **left)).has_changes
    assert here.change(small(description="second", **left, owner="me")).fields[0].path == "owner"
    here.applied(small(description="second", owner="me", **left))
    assert here.document(small()).spec["description"] == "first"
    assert here.change(small(description="second", owner="me")).action is Action.UPDATE


@pytest.mark.parametrize("fields", [{"notes": "long"}, {"notify": ["ana"]}])
@pytest.mark.parametrize(
    "script", [RunScript.stays_running(step=1), RunScript.completes()], ids=["works", "done"]
)
def test_notes_and_people_touch_no_run(scene, fields, script):
    here = scene(runs=script).applied(small())
    change = here.change(small(**fields))
    assert (change.action, change.interrupts) == (Action.UPDATE, False)
    here.applied(small(**fields))
    assert not here.plan(small(**fields)).has_changes


def test_people_to_be_told_are_named_where_a_run_is_held(scene):
    here = scene(runs=RunScript.fails("no memory")).applied(small(notify=["ana", "#rl"]))
    held = here.change(small(notify=["ana", "#rl"]))
    assert "tell ana, #rl" in held.notes
    assert "tell ana, #rl" in here.plan(small(notify=["ana", "#rl"])).drift[0].message
