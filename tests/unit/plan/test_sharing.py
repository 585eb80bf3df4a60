"""Equal work is one run: a plan warns of it, and does not say that it stops what goes on."""

import pytest
from stacks import small

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript


def twins(*, first=None):
    return small(set=first or {}).experiment("twin")


@pytest.fixture
def world():
    found = World(MemoryPlatform(runs=RunScript.stays_running(step=3)))
    apply(found, plan(found, twins().state(), target="prod"), twins().state(), Consent.APPROVED)
    return found


def change(planned, address):
    return next(c for c in planned.changes if c.address == address)


def after(world, planned, stack):
    apply(world, planned, stack.state(), Consent.APPROVED)
    return world.platform.run_status("r_0001").state.value


def test_whoever_begins_to_share_a_run_is_warned():
    planned = plan(World(MemoryPlatform()), twins().state(), target="prod")
    (warning,) = [d for d in planned.diagnostics if d.code == "shared-run"]
    assert "experiment/twin and experiment/words-grpo are the same work" in warning.message
    assert "whoever stops it stops it for all" in warning.message


def test_nobody_is_warned_again(world):
    assert not plan(world, twins().state(), target="prod").diagnostics


def test_who_leaves_a_shared_run_does_not_stop_it(world):
    stack = twins(first={"algorithm.lr": 3e-5})
    planned = plan(world, stack.state(), target="prod")
    found = change(planned, "experiment/words-grpo")
    assert not found.interrupts
    assert "the run goes on: experiment/twin shares it" in found.notes
    assert after(world, planned, stack) == "running"


def test_who_is_removed_does_not_stop_it_either(world):
    stack = twins().without("experiment/twin")
    planned = plan(world, stack.state(), target="prod")
    assert planned.applyable
    assert (
        change(planned, "experiment/twin").message == "removed from the repository: forgotten, data is kept"
    )
    assert after(world, planned, stack) == "running"


def test_who_is_destroyed_does_not_stop_it_and_both_do(world):
    one = plan(world, twins().state(), target="prod", scope=Scope(destroy=True, select=("experiment/twin",)))
    assert not one.interrupts
    both = plan(world, twins().state(), target="prod", scope=Scope(destroy=True))
    assert len(both.interrupts) == 2
    assert after(world, one, twins()) == "running"


def test_both_that_change_stop_it(world):
    stack = small(set={"algorithm.lr": 3e-5}).experiment("twin", set={"algorithm.lr": 4e-5})
    planned = plan(world, stack.state(), target="prod")
    assert len(planned.interrupts) == 2
    assert after(world, planned, stack) == "stopped"
