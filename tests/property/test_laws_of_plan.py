"""Laws that hold for every stack, not for examples."""

import random
from contextlib import suppress
from dataclasses import replace

from any_stack import SCRIPTS, applied, stacks
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_gitops.app import World, plan
from arena_gitops.errors import PartialApplyError, PlatformUnreachableError
from arena_gitops.evidence.rows_hash import with_rows_hashes
from arena_gitops.plan.diff import diff, patch
from arena_gitops.plan.model import Plan
from arena_gitops.plan.upstream import settle
from arena_gitops.platforms.memory import MemoryPlatform

FEW = settings(max_examples=40, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
@settings(max_examples=200, deadline=None)
def test_patching_by_the_difference_gives_the_other_value(old, new):
    assert patch(old, diff(old, new)) == new
    assert diff(new, patch(old, diff(old, new))) == ()


@given(stacks(), stacks(), SCRIPTS)
@FEW
def test_the_plan_of_an_applied_state_is_empty(first, second, script):
    world = World(MemoryPlatform(runs=script))
    for stack in (first, second):
        applied(world, stack)
        assert not plan(world, stack.state(), target="local").has_changes


@given(stacks(), stacks(), SCRIPTS)
@FEW
def test_apply_makes_the_platform_what_was_desired(first, second, script):
    world = World(MemoryPlatform(runs=script))
    applied(world, first)
    before = world.platform.observe(second.owner)
    planned = applied(world, second)
    settled = settle(second.state(), before, equivalent=planned.equivalent).desired
    wanted = with_rows_hashes(settled, planned).resources
    after = world.platform.observe(second.owner).resources
    assert set(after) == set(second.resources)
    for address, document in after.items():
        if satisfied(document, second.resources[address].spec):
            continue
        assert document.spec == wanted[address].spec
        assert address.kind == "deployment" or decisive(document) == decisive(wanted[address])


def decisive(resource):
    """The parts a plan acts on; a parent's new description alone rewrites no child."""
    return resource.fingerprint.model_copy(update={"parents_meta": ""})


def satisfied(document, wanted):
    """A lowered max_steps takes nothing back and is not written by itself."""
    if document.kind != "experiment":
        return False
    steps = "manifest", "training", "max_steps"
    return at(document.spec, steps) > at(wanted, steps)


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@given(stacks(), stacks())
@FEW
def test_a_plan_survives_the_round_trip_byte_for_byte(first, second):
    world = World(MemoryPlatform())
    applied(world, first)
    planned = plan(world, second.state(), target="local")
    assert Plan.from_json(planned.to_json()).to_json() == planned.to_json()


@given(stacks(), stacks(), st.randoms(use_true_random=False))
@FEW
def test_the_order_of_files_and_keys_does_not_matter(first, second, chance):
    world = World(MemoryPlatform())
    applied(world, first)
    straight = plan(world, second.state(), target="local")
    shuffled = plan(world, replace(second, resources=mixed(second.resources, chance)).state(), target="local")
    assert shuffled.to_json() == straight.to_json()


def mixed(resources, chance: random.Random):
    items = list(resources.items())
    chance.shuffle(items)
    return {
        address: replace(
            r,
            spec=shuffled_keys(r.spec, chance),
            depends_on=tuple(chance.sample(r.depends_on, len(r.depends_on))),
        )
        for address, r in items
    }


def shuffled_keys(value, chance: random.Random):
    if not isinstance(value, dict):
        return value
    items = [(key, shuffled_keys(inner, chance)) for key, inner in value.items()]
    chance.shuffle(items)
    return dict(items)


class Crashing(MemoryPlatform):
    """Dies at the k-th write: before it, or after it without an answer."""

    left = 10**9
    after = False

    def put(self, address, body, **under):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise PlatformUnreachableError("crashed")
        document = super().put(address, body, **under)
        if self.left == 0:
            raise PlatformUnreachableError("crashed")
        return document


@given(stacks(), st.integers(1, 8), st.booleans())
@FEW
def test_a_crash_at_any_step_and_the_same_command_again_is_one_apply(stack, step, after):
    world = World(Crashing())
    world.platform.left, world.platform.after = step, after
    with suppress(PlatformUnreachableError, PartialApplyError):
        applied(world, stack)
    applied(world, stack)
    whole = World(MemoryPlatform())
    applied(whole, stack)
    ours, theirs = (w.platform.observe(stack.owner).resources for w in (world, whole))
    assert {a: (d.spec, d.version) for a, d in ours.items()} == {
        a: (d.spec, d.version) for a, d in theirs.items()
    }
    work = [(run.status.fingerprint, run.rerun) for run in world.platform._ledger.runs.values()]
    assert len(work) == len(set(work))
