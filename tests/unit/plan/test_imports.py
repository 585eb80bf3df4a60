"""Imports: what commands have made is taken over as it is; nothing is started, and the next plan is empty."""

import pytest
from stacks import Stack, small

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.plan.model import Action
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.report.text import render
from arena_gitops.spec.resource import Address
from arena_gitops.state import Import

EVERYTHING = ("project/words", "dataset/words", "reward/exact", "experiment/words-grpo", "deployment/words")


def made_by_commands(stack, runs=None):
    """A platform on which commands have made this."""
    world = World(MemoryPlatform(runs=runs))
    stack.name = "imperative"
    apply(world, plan(world, stack.state(), target="local"), stack.state(), Consent.APPROVED)
    return world


def importing(stack, *names, as_is=False, ids=None):
    """The stack, with imports."""
    state = stack.state()
    wanted = {
        Address.parse(name): Import((ids or {}).get(name, name.partition("/")[2]), as_is) for name in names
    }
    return type(state)(**{field: getattr(state, field) for field in state.__slots__} | {"imports": wanted})


def actions(planned):
    return {c.address: c.action.value for c in planned.changes if c.action is not Action.NOOP}


def applied(world, desired):
    planned = plan(world, desired, target="local")
    runs = len(world.platform._ledger.runs)
    apply(world, planned, desired, Consent.APPROVED)
    assert len(world.platform._ledger.runs) == runs
    return planned


def test_everything_is_taken_over_and_the_next_plan_is_empty():
    world = made_by_commands(small())
    desired = importing(small(), *EVERYTHING)
    planned = applied(world, desired)
    assert actions(planned) == dict.fromkeys(EVERYTHING, "import")
    assert planned.summary["import"] == 5
    assert not plan(world, desired, target="local").has_changes
    mine = world.platform.observe(desired.owner).resources
    assert [mine[a].run.run_id for a in mine if a.kind == "experiment"] == ["r_0001"]
    assert world.platform.observe(small().owner).resources.keys() == mine.keys()


def test_without_an_import_the_name_is_somebody_elses():
    planned = plan(made_by_commands(small()), small().state(), target="local")
    assert {c.reason for c in planned.changes} == {"owned_by_another_stack"}
    assert "unmanaged: 5 (arena import --list)" in render(planned)


def test_metadata_that_differs_is_shown_and_taken_over():
    world = made_by_commands(small(description="by hand"))
    desired = importing(small(description="as code"), *EVERYTHING)
    change = next(c for c in applied(world, desired).changes if c.address == "experiment/words-grpo")
    assert [(f.path, f.old, f.new) for f in change.fields] == [("description", "by hand", "as code")]
    assert not plan(world, desired, target="local").has_changes


@pytest.mark.parametrize(
    "other", [{"set": {"algorithm.lr": 3e-5}}, {"set": {"training.max_steps": 2000}}], ids=["lr", "steps"]
)
def test_what_would_be_trained_is_in_the_way_unless_it_is_adopted_as_is(other):
    world = made_by_commands(small())
    blocked = plan(world, importing(small(**other), *EVERYTHING), target="local")
    change = next(c for c in blocked.changes if c.address == "experiment/words-grpo")
    assert (change.action, change.reason) == (Action.BLOCKED, "import_differs")
    assert "add adopt: as_is" in change.message
    desired = importing(small(**other), *EVERYTHING, as_is=True)
    applied(world, desired)
    assert not plan(world, desired, target="local").has_changes


@pytest.mark.parametrize(
    "script",
    [RunScript.fails("no memory"), RunScript.stays_running(step=3), RunScript.stays_queued()],
    ids=["failed", "running", "queued"],
)
def test_a_run_stays_as_it_is(script):
    world = made_by_commands(small(), script)
    desired = importing(small(), *EVERYTHING)
    before = world.platform.run_status("r_0001")
    applied(world, desired)
    assert world.platform.run_status("r_0001") == before


def test_what_a_run_at_work_was_asked_for_is_not_raised_by_an_import():
    world = made_by_commands(small(), RunScript.stays_running(step=3))
    desired = importing(small(set={"training.max_steps": 2000}), *EVERYTHING, as_is=True)
    change = next(
        c for c in plan(world, desired, target="local").changes if c.address == "experiment/words-grpo"
    )
    assert (change.action, change.reason) == (Action.BLOCKED, "import_differs")
    assert "raise or move it afterwards" in change.message


def test_nothing_is_raised_later_by_what_an_import_has_recorded():
    world = made_by_commands(small(), RunScript.completes())
    applied(world, importing(small(set={"training.max_steps": 2000}), *EVERYTHING, as_is=True))
    world.platform._ledger.runs["r_0001"].script = RunScript.stays_running(step=1500)
    edited = small(set={"training.max_steps": 2000}, description="edited")
    apply(world, plan(world, edited.state(), target="local"), edited.state(), Consent.APPROVED)
    assert world.platform.run_status("r_0001").state.value == "completed"


def test_an_import_that_is_done_does_nothing():
    world = made_by_commands(small())
    applied(world, importing(small(), *EVERYTHING))
    changed = importing(small(set={"algorithm.lr": 3e-5}), *EVERYTHING)
    assert actions(plan(world, changed, target="local")) == {"experiment/words-grpo": "new_version"}


def test_what_is_not_there_is_not_imported_and_what_is_there_is_said():
    world = made_by_commands(small())
    desired = importing(Stack().project("other"), "project/other", ids={"project/other": "1234"})
    (change,) = plan(world, desired, target="local").changes
    assert (change.action, change.reason) == (Action.BLOCKED, "import_not_found")
    assert "no unmanaged project '1234'" in change.message
    assert "project/words" in change.message


def test_a_plan_of_an_import_is_stale_once_a_command_has_changed_it():
    world = made_by_commands(small())
    desired = importing(small(), *EVERYTHING)
    planned = plan(world, desired, target="local")
    again = small(description="meanwhile")
    again.name = "imperative"
    apply(world, plan(world, again.state(), target="local"), again.state(), Consent.APPROVED)
    with pytest.raises(Exception, match="experiment/words-grpo was changed by somebody"):
        apply(world, planned, desired, Consent.APPROVED)
