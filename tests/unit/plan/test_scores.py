"""What a reward paid and pays: recorded results of the very contents that are compared, or nothing."""

from stacks import REWARD, small

from arena_gitops.apply import inspection
from arena_gitops.apply.events import silent
from arena_gitops.plan.scores import paired
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.report import diffs
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import CheckResult, SampleScore

OTHER = REWARD.replace("-1", "0")
ADDRESS = Address("reward", "exact")


class Sandbox(MemoryPlatform):
    """Pays for the first sample what the code says first: a score that differs between two contents."""

    def check(self, request):
        code = self._blobs[request.inputs.reward.files[request.inputs.reward.entry]]
        samples = (
            SampleScore(sample="case 1", expect=1.0, total=1.0 if b"-1" in code else 0.25),
            SampleScore(sample="case 2", total=0.5),
        )
        yield CheckResult(address="reward/exact", name="cases", status="pass", scores=samples)


def changed(source=OTHER):
    return small().reward(source=source).experiment().deployment()


def recorded(scene, stack):
    return inspection.run(scene.platform, stack.state(), (ADDRESS,), silent)


def here(scene):
    found = scene()
    found.platform = Sandbox()
    found.world = type(found.world)(found.platform)
    return found.applied(small())


def test_a_plan_shows_recorded_scores_of_both_contents(scene):
    place = here(scene)
    change = place.change(changed(), "reward/exact", checks=recorded(place, changed()))
    assert [line for line, _ in diffs.scores(change)] == [
        "scores of 2 samples by arena check: mean 0.75 → 0.375, 1 changed",
        "  case 1  1 → 0.25 (expected 1)",
    ]


def test_scores_of_other_contents_are_not_shown_and_a_remark_says_so(scene):
    place = here(scene)
    plan = place.plan(changed(OTHER + "x = 1\n"), checks=recorded(place, changed()))
    assert all(change.scores is None for change in plan.changes)
    assert [remark.code for remark in plan.diagnostics] == ["outdated-checks"]


def test_an_unchanged_reward_is_not_run_twice(scene):
    assert recorded(here(scene), small()).rewards == ()


def test_a_sample_that_fails_is_a_difference_and_counts_in_no_mean():
    old = [
        SampleScore(sample="one", total=1.0),
        SampleScore(sample="two", total=0.0),
        SampleScore(sample="gone"),
    ]
    new = [SampleScore(sample="one", error="ValueError"), SampleScore(sample="two", total=0.0)]
    found = paired("reward/r", ({}, {}), old, new)
    assert (len(found.pairs), [pair.sample for pair in found.changed]) == (2, ["one"])
    assert found.means() == (0.0, 0.0)
