"""`arena destroy` as a plan: what goes, in which order, what stands in the way, and what it says stays."""

import pytest
from stacks import Stack, small

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.errors import BlockedError, UsageError
from arena_gitops.plan.model import Action, Plan
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript

ALL = Scope(destroy=True)


def many():
    """Twelve resources."""
    stack = small()
    for number in range(7):
        stack.experiment(f"e{number}", set={"mutation.rand_seed": number})
    return stack


class Place:
    """A platform to which a stack was applied."""

    def __init__(self, stack, runs=None):
        self.world, self.stack = World(MemoryPlatform(runs=runs)), stack
        apply(self.world, plan(self.world, stack.state(), target="local"), stack.state(), Consent.APPROVED)

    def plan(self, *select, stack=None, **options):
        scope = Scope(destroy=True, select=select, purge=options.pop("purge", False))
        return plan(self.world, (stack or self.stack).state(), target="prod", scope=scope, **options)

    def destroy(self, *select, consent=Consent.APPROVED, allow=frozenset(), **options):
        planned = self.plan(*select, allow=allow, **options)
        return apply(self.world, planned, self.stack.state(), consent, allow=allow)

    @property
    def left(self):
        return sorted(str(a) for a in self.world.platform.observe(self.stack.owner).resources)


def actions(planned):
    return {change.address: change.action.value for change in planned.changes}


def test_the_whole_stack_goes_dependants_first():
    place = Place(small())
    planned = place.plan()
    assert (planned.mode, planned.applyable, planned.complete) == ("destroy", True, True)
    assert actions(planned) == {
        "project/words": "retire",
        "dataset/words": "retire",
        "reward/exact": "retire",
        "experiment/words-grpo": "retire",
        "deployment/words": "destroy",
    }
    order = [step.address for step in place.destroy().steps]
    assert order[:2] == ["deployment/words", "experiment/words-grpo"]
    assert order[-1] == "project/words"
    assert place.left == []


def test_what_builds_on_an_experiment_goes_before_it():
    place = Place(small().experiment("words-more", base="words-grpo"))
    steps = [step.address for step in place.destroy().steps]
    assert steps.index("experiment/words-more") < steps.index("experiment/words-grpo")


def test_after_it_the_next_plan_takes_up_the_result():
    place = Place(small())
    place.destroy()
    again = plan(place.world, place.stack.state(), target="prod")
    assert actions(again)["experiment/words-grpo"] == "reuse"


def test_after_a_purge_there_is_no_result_and_no_file_left():
    place = Place(small())
    assert set(actions(place.plan(purge=True)).values()) == {"destroy"}
    place.destroy(purge=True)
    again = plan(place.world, place.stack.state(), target="prod")
    assert actions(again)["experiment/words-grpo"] == "create"
    blobs = [blob.digest for resource in place.stack.resources.values() for blob in resource.blobs]
    assert place.world.platform.missing_blobs(blobs) == set(blobs)


def test_a_purge_leaves_what_others_use():
    place = Place(small().experiment("twin").experiment("other", set={"mutation.rand_seed": 9}))
    place.destroy("experiment/words-grpo+", purge=True)
    assert "experiment/twin" in place.left
    shared = plan(place.world, place.stack.state(), target="prod")
    assert actions(shared)["experiment/words-grpo"] == "reuse"
    assert not place.world.platform.missing_blobs(
        blob.digest for resource in place.stack.resources.values() for blob in resource.blobs
    )


def test_only_what_is_selected_goes():
    place = Place(small())
    planned = place.plan("deployment/words")
    assert (actions(planned), planned.complete) == ({"deployment/words": "destroy"}, False)
    place.destroy("deployment/words")
    assert "experiment/words-grpo" in place.left


def test_a_part_that_others_use_is_in_the_way():
    planned = Place(small()).plan("dataset/words")
    (change,) = planned.changes
    assert (change.action, change.reason) == (Action.BLOCKED, "user_not_selected")
    assert "--select dataset/words+" in change.message
    assert actions(Place(small()).plan("dataset/words+")) == {
        "dataset/words": "retire",
        "experiment/words-grpo": "retire",
        "deployment/words": "destroy",
    }


def test_what_the_repository_no_longer_declares_goes_too():
    place = Place(small())
    planned = place.plan("experiment/words-grpo+", stack=Stack())
    assert set(actions(planned)) == {"experiment/words-grpo", "deployment/words"}
    assert not [d for d in planned.diagnostics if d.code == "still-declared"]


def test_what_the_repository_still_declares_is_said():
    (said,) = [d for d in Place(small()).plan().diagnostics if d.code == "still-declared"]
    assert "5 of these" in said.message


def test_a_name_that_is_nowhere_is_refused():
    with pytest.raises(UsageError, match="experiment/words-grop"):
        Place(small()).plan("experiment/words-grop")


def test_protection_blocks():
    place = Place(small(lifecycle={"protect": True}))
    with pytest.raises(BlockedError, match=r"lifecycle\.protect is set: apply with protect: false first"):
        place.destroy()
    assert len(place.left) == 5


def test_a_running_run_is_stopped_only_by_who_saw_the_plan_or_allowed_it():
    place = Place(small(), RunScript.stays_running(step=3))
    assert place.plan().interrupts
    with pytest.raises(BlockedError, match="--allow interrupt"):
        place.destroy(consent=Consent.UNSEEN)
    place.destroy(consent=Consent.UNSEEN, allow=frozenset({"interrupt"}))
    assert place.left == []


def test_many_removals_need_a_word_where_nobody_looks():
    place = Place(many())
    (check,) = place.plan().checks
    assert (check.name, check.status.value) == ("removals", "warn")
    with pytest.raises(BlockedError, match="--allow removals"):
        place.destroy(consent=Consent.UNSEEN)
    assert len(place.left) == 12
    place.destroy(consent=Consent.UNSEEN, allow=frozenset({"removals"}))
    assert place.left == []


def test_an_uncommitted_repository_may_destroy():
    place = Place(small())
    place.stack.dirty = True
    place.destroy()
    assert place.left == []


def test_the_empty_repository_guard_is_not_asked():
    place = Place(small())
    assert place.plan(stack=Stack()).applyable


def test_a_purge_is_another_plan():
    place = Place(small())
    plain, purge = (place.plan("deployment/words", purge=flag) for flag in (False, True))
    assert actions(plain) == actions(purge)
    assert plain.plan_id != purge.plan_id
    assert Plan.from_json(purge.to_json()) == purge


def test_what_a_removed_file_leaves_waits_for_its_users():
    """Also without `destroy`: files that are gone together are retired in the order of use."""
    place = Place(small())
    gone = small().without("deployment/words").without("experiment/words-grpo")
    changes = {c.address: c for c in plan(place.world, gone.state(), target="prod").changes}
    assert changes["experiment/words-grpo"].depends_on == ("deployment/words",)
