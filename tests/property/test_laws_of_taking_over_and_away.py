"""Laws of imports and of `arena destroy`, for every stack: what is taken over is left alone, what is destroyed is gone."""

from dataclasses import replace

from any_stack import SCRIPTS, applied, stacks
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.plan.model import Action
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.wire import Owner
from arena_gitops.state import Import

FEW = settings(max_examples=25, deadline=None)
DESTROY = Scope(destroy=True)


@given(stacks(), SCRIPTS, st.booleans())
@FEW
def test_what_is_destroyed_is_gone_and_nothing_works_for_it(stack, script, purge):
    world = World(MemoryPlatform(runs=script))
    applied(world, stack)
    planned = plan(world, stack.state(), target="local", scope=replace_scope(purge=purge))
    apply(world, planned, stack.state(), Consent.APPROVED)
    assert world.platform.observe(stack.owner).resources == {}
    assert all(run.status.state.ended for run in world.platform._ledger.runs.values())
    assert not plan(world, stack.state(), target="local", scope=DESTROY).has_changes
    blobs = [blob.digest for resource in stack.resources.values() for blob in resource.blobs]
    assert world.platform.missing_blobs(blobs) == (frozenset(blobs) if purge else frozenset())


def replace_scope(*, purge):
    return DESTROY.model_copy(update={"purge": purge})


def what_it_did(run):
    """Everything but what it is recorded to have been asked for."""
    return run.status.model_copy(update={"max_steps": 0})


@given(stacks())
@FEW
def test_what_was_destroyed_comes_back_for_nothing(stack):
    assume(all(resource.spec.get("reuse", True) for resource in stack.resources.values()))
    world = World(MemoryPlatform(runs=RunScript.completes()))
    applied(world, stack)
    planned = plan(world, stack.state(), target="local", scope=DESTROY)
    apply(world, planned, stack.state(), Consent.APPROVED)
    made = len(world.platform._ledger.runs)
    applied(world, stack)
    assert len(world.platform._ledger.runs) == made
    assert not plan(world, stack.state(), target="local").has_changes


@given(stacks(), stacks(), SCRIPTS)
@FEW
def test_what_is_imported_is_left_as_it_was_and_the_next_plan_is_empty(by_hand, stack, script):
    """Also where the repository says otherwise: it adopts as is."""
    world = World(MemoryPlatform(runs=script))
    made = replace(by_hand.state(), owner=Owner(stack="imperative"))
    apply(world, plan(world, made, target="local"), made, Consent.APPROVED)
    ledger = world.platform._ledger
    before = {run_id: what_it_did(run) for run_id, run in ledger.runs.items()}
    common = by_hand.resources.keys() & stack.resources.keys()
    kept = {
        address: resource
        for address, resource in stack.resources.items()
        if address in common and not {*resource.depends_on} - common
    }
    wanted = {address: Import(address.name, as_is=True) for address in kept}
    desired = replace(stack.state(), resources=kept, imports=wanted)
    planned = plan(world, desired, target="local")
    if not planned.applyable:  # more is asked of a run at work: said, and nothing is taken over
        assert {c.reason for c in planned.changes if c.action is Action.BLOCKED} == {"import_differs"}
        return
    apply(world, planned, desired, Consent.APPROVED)
    assert {run_id: what_it_did(run) for run_id, run in ledger.runs.items()} == before
    assert not plan(world, desired, target="local").has_changes
