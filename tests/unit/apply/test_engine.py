"""Order, barrier, partial failure, interruption, journal: what an apply does and what it leaves behind."""

from dataclasses import replace
from pathlib import Path

import pytest
from stacks import ROWS, Stack, small

from arena_gitops.app import Consent, apply
from arena_gitops.apply.engine import levels
from arena_gitops.apply.events import Checked, StepResult, Uploaded
from arena_gitops.apply.journal import Journal, unresolved
from arena_gitops.errors import (
    BlockedError,
    CheckFailedError,
    InterruptedByUserError,
    PartialApplyError,
    PlatformError,
    PlatformUnreachableError,
    RepoError,
    StaleError,
)
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.resource import Address

BROKEN = "def reward(question, answer, completion):\n    return )\n"


def two_branches():
    stack = small()
    return stack.reward("other", source="def reward(q, a, c):\n    return 0.5\n").experiment(
        "second", reward="other"
    )


def test_parents_come_before_children_and_waves_in_order(scene):
    here = scene()
    here.apply(two_branches())
    assert here.platform.called("put") == [
        "project/words",
        "dataset/words",
        "reward/exact",
        "reward/other",
        "experiment/second",
        "experiment/words-grpo",
        "deployment/words",
    ]


def test_an_experiment_comes_after_its_base(scene):
    here = scene()
    here.apply(Stack().dataset().reward().experiment("z-base").experiment("a-child", base="z-base"))
    assert here.platform.called("put")[-2:] == ["experiment/z-base", "experiment/a-child"]


def test_removals_come_last_in_reverse(scene):
    here = scene()
    here.apply(small())
    here.apply(Stack().project("new").project("words"))
    assert here.platform.called("retire") == [
        "deployment/words",
        "experiment/words-grpo",
        "reward/exact",
        "dataset/words",
    ]
    assert here.platform.calls.index(("put", "project/new")) < here.platform.calls.index(
        ("retire", "deployment/words")
    )


def test_files_are_sent_once(scene):
    here = scene()
    here.apply(small())
    here.apply(small(set={"algorithm.lr": 3e-5}))
    assert sorted(here.platform.called("upload")) == ["exact.py", "words.csv"]
    assert [(e.done, e.total) for e in here.seen(Uploaded)] == [(1, 2), (2, 2)]


def test_what_apply_did_is_told_step_by_step(scene):
    here = scene()
    applied = here.apply(small())
    assert here.seen(StepResult) == list(applied.steps)
    (trained,) = [step for step in applied.steps if step.address == "experiment/words-grpo"]
    assert (trained.version, trained.run_id) == (1, "r_0001")
    assert applied.steps[-1].url == "memory:///i/words"


def test_one_failing_check_and_nothing_is_changed(scene):
    here = scene()
    stack = small().dataset(column_mapping={"question": "question", "answer": "solution"})
    stack.reward(source=BROKEN).experiment().experiment("second").deployment()
    with pytest.raises(CheckFailedError) as failure:
        here.apply(stack)
    assert "datasets/words.yaml:1:1: dataset/words: columns: no column solution" in str(failure.value)
    assert "rewards/exact.py:2: reward/exact: syntax" in str(failure.value)
    assert "2 checks failed" in str(failure.value)
    assert failure.value.exit_code == 10
    assert here.platform.called("put") == []
    assert len(here.seen(Checked)) == 4


def test_a_check_of_something_that_is_no_resource_is_told_too(scene):
    here = scene()
    stack = small()
    resource = stack.resources[Address("experiment", "words-grpo")]
    inputs = {
        **resource.spec["inputs"],
        "dataset": {**resource.spec["inputs"]["dataset"], "address": "hub rows"},
    }
    inputs["dataset"]["column_mapping"] = {}
    stack.resources[resource.address] = replace(resource, spec={**resource.spec, "inputs": inputs})
    with pytest.raises(CheckFailedError, match="\n  hub rows: columns"):
        here.apply(stack)


def test_what_is_reused_or_only_relabelled_is_not_checked_again(scene):
    here = scene()
    here.apply(small())
    here.events.clear()
    here.apply(small(description="newer").experiment("again"))
    assert here.seen(Checked) == []


def test_a_failure_skips_what_depends_on_it_and_nothing_else(scene):
    here = scene({"reward/exact": PlatformError("disk full")})
    with pytest.raises(PartialApplyError) as failure:
        here.apply(two_branches())
    outcomes = {step.address: (step.outcome, step.message) for step in here.seen(StepResult)}
    assert outcomes["reward/exact"] == ("failed", "disk full")
    assert outcomes["experiment/words-grpo"] == ("skipped", "dependency failed: reward/exact")
    assert outcomes["deployment/words"] == ("skipped", "dependency failed: experiment/words-grpo")
    assert outcomes["experiment/second"][0] == "applied"
    assert {step.address for step in failure.value.failed} == {
        "reward/exact",
        "experiment/words-grpo",
        "deployment/words",
    }
    assert failure.value.exit_code == 7
    assert "4 of 7" in str(failure.value)


def test_what_is_no_longer_as_planned_when_its_turn_comes_makes_the_apply_a_stale_one(scene):
    """Stale outranks partial: what was approved is not what there is."""
    here = scene({"deployment/words": StaleError("the alias points elsewhere")})
    with pytest.raises(StaleError, match="4 of 5 changes were made") as failure:
        here.apply(small())
    assert failure.value.exit_code == 4
    assert "failed   deployment/words" in str(failure.value)


def test_the_same_command_goes_on_after_a_failure(scene):
    here = scene({"experiment/words-grpo": PlatformError("disk full")})
    with pytest.raises(PartialApplyError):
        here.apply(small())
    here.platform.failures.clear()
    assert [step.address for step in here.apply(small()).steps] == [
        "experiment/words-grpo",
        "deployment/words",
    ]


def test_a_platform_that_goes_away_at_once_is_that_error(scene):
    here = scene({"project/words": PlatformUnreachableError("gone")})
    with pytest.raises(PlatformUnreachableError):
        here.apply(small())


def test_a_platform_that_goes_away_in_the_middle_is_a_partial_apply(scene):
    here = scene({"reward/exact": PlatformUnreachableError("gone")})
    with pytest.raises(PartialApplyError) as failure:
        here.apply(two_branches())
    messages = {step.address: step.message for step in failure.value.failed}
    assert "may or may not be done" in messages["reward/exact"]
    assert messages["reward/other"] == "the platform does not answer"


def test_a_world_that_moved_is_noticed_before_the_first_change(scene):
    here = scene()
    here.apply(small())
    planned = here.plan(small(description="mine"))
    here.apply(small(description="theirs"))
    here.platform.calls.clear()
    with pytest.raises(StaleError, match="experiment/words-grpo was changed"):
        apply(here.world, planned, small(description="mine").state(), Consent.APPROVED)
    assert here.platform.calls == []


def test_a_resource_that_appeared_or_went_away_is_noticed(scene):
    here = scene()
    creating = here.plan(small())
    here.apply(small())
    with pytest.raises(StaleError, match="project/words exists by now"):
        apply(here.world, creating, small().state(), Consent.APPROVED)
    updating = here.plan(small(description="mine"))
    here.apply(small().without("deployment/words").without("experiment/words-grpo"))
    with pytest.raises(StaleError, match="experiment/words-grpo is gone"):
        apply(here.world, updating, small(description="mine").state(), Consent.APPROVED)


def test_a_run_that_started_meanwhile_is_not_stopped_unseen(scene):
    here = scene(runs=RunScript.stays_queued())
    here.apply(small())
    changed = small(set={"algorithm.lr": 3e-5})
    planned = here.plan(changed)
    here.platform.play("r_0001", RunScript.stays_running(step=8))
    with pytest.raises(StaleError, match="is running by now"):
        apply(here.world, planned, changed.state(), Consent.APPROVED)


def test_a_plan_of_another_database_is_stale(scene):
    planned = scene().plan(small()).model_copy(update={"lineage": "another"})
    with pytest.raises(StaleError):
        apply(scene().world, planned, small().state(), Consent.APPROVED)


def test_a_blocked_plan_is_not_applied_whoever_asks(scene):
    here = scene(algorithms=["SFT"])
    with pytest.raises(BlockedError, match="GRPO cannot be trained here"):
        here.apply(small())
    assert here.platform.calls == []


def test_a_file_that_is_not_on_this_machine_is_named(scene):
    stack = small()
    dataset = stack.resources[Address("dataset", "words")]
    blob = replace(dataset.blobs[0], absent="a Git LFS pointer; run git lfs pull")
    stack.resources[dataset.address] = replace(dataset, blobs=(blob,))
    with pytest.raises(RepoError, match=r"words\.csv cannot be uploaded: a Git LFS pointer"):
        scene().apply(stack)


def test_asked_to_stop_it_finishes_what_it_began(scene, tmp_path):
    here = scene(journal=tmp_path / "j.ndjson", stopping=lambda: len(here.platform.called("put")) >= 2)
    with pytest.raises(InterruptedByUserError, match="stopped after 2 changes"):
        here.apply(small())
    assert len(here.platform.called("put")) == 2
    assert unresolved(tmp_path / "j.ndjson") == ()
    here.world = replace(here.world, stopping=lambda: False)
    here.apply(small())
    assert not here.plan(small()).has_changes


def test_the_journal_has_every_intent_before_its_result(scene, tmp_path):
    path = tmp_path / "git" / "arena" / "prod.ndjson"
    here = scene({"deployment/words": PlatformError("no")}, journal=path)
    with pytest.raises(PartialApplyError):
        here.apply(small())
    lines = path.read_text().splitlines()
    assert len(lines) == 10
    assert '"address": "project/words"' in lines[0]
    assert '"outcome": "applied"' in lines[1]
    assert '"outcome": "failed"' in lines[-1]
    assert unresolved(path) == ()


def test_a_call_without_an_answer_stays_open_in_the_journal(scene, tmp_path):
    path = tmp_path / "prod.ndjson"
    here = scene({"dataset/words": PlatformUnreachableError("gone")}, journal=path)
    with pytest.raises(PartialApplyError):
        here.apply(small())
    (intent,) = unresolved(path)
    assert (intent.address, intent.action) == ("dataset/words", "create")
    assert intent.idempotency_key.startswith("sha256:")


def test_a_torn_line_of_the_journal_was_never_acted_upon(tmp_path):
    path = tmp_path / "prod.ndjson"
    path.write_text('{"seq": 4, "outcome": "applied"}\n{"seq": 5, "addr')
    assert unresolved(path) == ()
    assert Journal(path, lambda: 0.0)._seq == 4
    assert unresolved(Path("nowhere.ndjson")) == ()


def test_the_order_does_not_depend_on_the_order_of_the_plan(scene):
    changes = list(scene().plan(two_branches()).changes)
    assert list(levels(changes)) == list(levels(changes[::-1]))


def test_going_back_and_forth_trains_each_version_once(scene):
    here = scene()
    for lr in (1e-5, 3e-5, 1e-5, 3e-5):
        here.apply(small(set={"algorithm.lr": lr}))
    assert set(here.platform._ledger.runs) == {"r_0001", "r_0002"}
    assert not here.plan(small(set={"algorithm.lr": 3e-5})).has_changes


def test_stale_rows_are_uploaded_with_their_dataset_only(scene):
    here = scene()
    here.apply(small())
    stack = small().dataset(rows=ROWS + "a,b\n").experiment(description="newer").deployment()
    here.apply(stack)
    assert not here.plan(stack).has_changes


def test_a_check_that_fails_holds_up_only_what_depends_on_it_when_asked_to_keep_going(scene):
    here = scene()
    broken = "def reward(question, answer, completion:\n"
    stack = (
        small()
        .reward("broken", source=broken)
        .experiment("other", reward="broken")
        .deployment("o", experiment="other")
    )
    with pytest.raises(CheckFailedError, match="nothing was changed"):
        here.apply(stack)
    assert here.platform.called("put") == []
    here.world = replace(here.world, keep_going=True)
    with pytest.raises(CheckFailedError, match=r"6 of 8 changes were made, 1 failed a check") as caught:
        here.apply(stack)
    said = " ".join(str(caught.value).split())
    assert "failed experiment/other check failed: " in said
    assert "skipped deployment/o dependency failed: experiment/other" in said
    assert "deployment/words" in here.platform.called("put")
