"""Consent, exit codes and refusals of the use-cases."""

import pytest
from stacks import Stack, small

from arena_gitops.app import (
    Consent,
    SystemClock,
    World,
    apply,
    exit_code,
    plan,
    require_applyable,
    require_no_changes,
    require_same,
    status,
)
from arena_gitops.errors import BlockedError, StaleError, UnexpectedChangesError
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.state import Policy

CHANGED = {"set": {"algorithm.lr": 3e-5}}


@pytest.fixture
def running():
    world = World(MemoryPlatform(runs=RunScript.stays_running(step=8)))
    apply(world, plan(world, small().state(), target="local"), small().state(), Consent.UNSEEN)
    return world


def test_an_interruption_needs_eyes_or_a_word(running):
    stack = small(**CHANGED).state()
    planned = plan(running, stack, target="local")
    with pytest.raises(BlockedError, match="experiment/words-grpo"):
        apply(running, planned, stack, Consent.UNSEEN)
    apply(running, planned, stack, Consent.UNSEEN, allow=frozenset({"interrupt"}))


def test_who_saw_the_plan_has_allowed_its_interruptions(running):
    stack = small(**CHANGED).state()
    assert apply(running, plan(running, stack, target="local"), stack, Consent.APPROVED).steps


@pytest.mark.parametrize("target", ["prod", "https://arena.example.org"])
def test_what_is_not_committed_goes_to_the_local_platform_only(target):
    world, stack = World(MemoryPlatform()), Stack(dirty=True).project()
    with pytest.raises(BlockedError, match="uncommitted"):
        apply(world, plan(world, stack.state(), target=target), stack.state(), Consent.APPROVED)
    planned = plan(world, stack.state(), target=target)
    apply(world, planned, stack.state(), Consent.APPROVED, allow=frozenset({"dirty"}))


def test_the_local_platform_takes_what_is_not_committed():
    world, stack = World(MemoryPlatform()), Stack(dirty=True).project()
    apply(world, plan(world, stack.state(), target="local"), stack.state(), Consent.APPROVED)
    assert len(status(world, stack.owner).resources) == 1


def test_exit_codes_of_a_plan():
    world = World(MemoryPlatform())
    changes = plan(world, small().state(), target="local")
    assert [exit_code(changes, detailed=detailed) for detailed in (False, True)] == [0, 2]
    apply(world, changes, small().state(), Consent.APPROVED)
    nothing = plan(world, small().state(), target="local")
    assert [exit_code(nothing, detailed=detailed) for detailed in (False, True)] == [0, 0]
    blocked = plan(world, Stack().state(), target="local")
    assert [exit_code(blocked, detailed=detailed) for detailed in (False, True)] == [3, 3]


def test_every_reason_of_a_blocked_plan_is_told():
    stack = small()
    stack.policy = Policy(require_owner=True)
    planned = plan(World(MemoryPlatform(algorithms=["SFT"])), stack.state(), target="local")
    with pytest.raises(BlockedError, match="GRPO"):
        require_applyable(planned)
    planned = plan(World(MemoryPlatform()), stack.state(), target="local")
    with pytest.raises(BlockedError, match=r"policy.require_owner: no owner: experiment/words-grpo"):
        require_applyable(planned)


def test_only_the_approved_plan():
    planned = plan(World(MemoryPlatform()), small().state(), target="local")
    require_same(planned, planned.plan_id)
    with pytest.raises(StaleError, match="sha256:other"):
        require_same(planned, "sha256:other")


def test_no_changes_can_be_demanded():
    world = World(MemoryPlatform())
    planned = plan(world, small().state(), target="local")
    with pytest.raises(UnexpectedChangesError, match="project/words"):
        require_no_changes(planned)
    apply(world, planned, small().state(), Consent.APPROVED)
    require_no_changes(plan(world, small().state(), target="local"))


def test_the_clock_of_this_machine_goes_on():
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now() > 1_600_000_000
