"""What the memory platform adds to the contract: structural checks, scripted runs, standing promotions."""

import pytest
from stacks import REWARD, Stack, small

from arena_gitops.app import Consent, World, apply, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.job import Checkpoint, FailureReason, JobInputs, RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import CheckRequest

EXPERIMENT = Address("experiment", "words-grpo")
DEPLOYMENT = Address("deployment", "words")


def verdicts(stack, *, upload=True, **inputs):
    platform = MemoryPlatform()
    for resource in stack.resources.values() if upload else ():
        for blob in resource.blobs:
            platform.upload(blob)
    spec = stack.resources[EXPERIMENT].spec
    request = CheckRequest(
        address=str(EXPERIMENT),
        manifest=spec["manifest"],
        inputs=JobInputs.model_validate({**spec["inputs"], **inputs}),
    )
    return [(r.address, r.name, r.status, r.message) for r in platform.check(request)]


def applied(stack, runs=None):
    platform = MemoryPlatform(runs=runs)
    world = World(platform)
    apply(world, plan(world, stack.state(), target="local"), stack.state(), Consent.APPROVED)
    return platform


def served(platform):
    return platform.observe(small().owner).resources[DEPLOYMENT].deployment


def test_files_that_were_not_uploaded_fail():
    found = verdicts(small(), upload=False)
    assert [(address, name, status) for address, name, status, _ in found] == [
        ("dataset/words", "file", "fail"),
        ("reward/exact", "file", "fail"),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("question,answer\n", "the file has a header and no rows"),
        ("prompt\nx\n", "no column question, answer; the file has prompt"),
        ("", "no column question, answer; the file has no header"),
    ],
)
def test_a_table_that_cannot_be_trained_on_fails(rows, message):
    stack = Stack().dataset(rows=rows).reward().experiment()
    assert verdicts(stack)[0][2:] == ("fail", message)


@pytest.mark.parametrize("fields", [{"format": "jsonl"}, {"digest": None, "hf": {"id": "openai/gsm8k"}}])
def test_what_is_no_table_is_not_opened(fields):
    dataset = {**small().resources[EXPERIMENT].spec["inputs"]["dataset"], **fields}
    assert verdicts(small(), dataset=dataset)[0][2] == "pass"


def test_a_reward_must_define_its_function():
    stack = Stack().dataset().reward(source=REWARD.replace("def reward", "def score")).experiment()
    assert verdicts(stack)[1][2:] == ("fail", "no function reward; the file defines score")


def test_without_inputs_there_is_nothing_to_check():
    assert verdicts(small(), dataset=None, reward=None) == []


def test_a_run_that_completes_is_promoted_and_its_story_told():
    platform = applied(small(), RunScript.completes(fitness=0.75))
    assert served(platform).checkpoint == "step_1000/m0"
    assert served(platform).revision == 1
    types = [stored.event.type for stored in platform.run_events("r_0001")]
    assert types == ["checkpoint", "finished"]
    assert [stored.index for stored in platform.run_events("r_0001", after=1)] == [2]


def test_a_run_can_fail_with_a_reason():
    platform = applied(small(), RunScript.fails("out of memory", reason=FailureReason.OOM))
    status = platform.run_status("r_0001")
    assert (status.state, status.reason, status.message) == (RunState.FAILED, "oom", "out of memory")
    assert served(platform).state == "pending"


def test_the_world_can_move_on():
    platform = applied(small(), RunScript.stays_queued())
    platform.play("r_0001", RunScript.stays_running(step=10))
    assert platform.run_status("r_0001").step == 10
    platform.play("r_0001", RunScript.completes())
    assert served(platform).state == "serving"
    assert platform.stop_run("r_0001").state is RunState.COMPLETED


def test_a_raised_budget_goes_on_and_serves_the_newer_checkpoint():
    platform = applied(small())
    world, longer = World(platform), small(set={"training.max_steps": 2000})
    apply(world, plan(world, longer.state(), target="local"), longer.state(), Consent.APPROVED)
    status = platform.run_status("r_0001")
    assert (status.step, status.segments, len(status.checkpoints)) == (2000, 2, 2)
    assert served(platform).checkpoint == "step_1000/m0"  # equal fitness: the earlier one is the best


@pytest.mark.parametrize(
    ("checkpoint", "label"), [("step_700", "step_500/m1"), ("step_700/m0", "step_500/m0")]
)
def test_a_step_names_the_fittest_member_of_the_newest_checkpoint_at_or_before_it(checkpoint, label):
    platform = applied(small().deployment(checkpoint=checkpoint), RunScript.stays_running(step=1))
    run = platform._ledger.runs["r_0001"]
    saved = [(100, 0, 0.9), (500, 0, 0.2), (500, 1, 0.4), (900, 0, 0.8)]
    run.status = run.status.model_copy(update={"checkpoints": tuple(saved_at(*each) for each in saved)})
    platform.play("r_0001", RunScript(RunState.COMPLETED))
    assert served(platform).checkpoint == label


def saved_at(step, member, fitness):
    digest = f"sha256:{step:060x}{member:04x}"
    return Checkpoint(
        step=step, member=member, generation=1, fitness=fitness, digest=digest, files={}, size_bytes=0
    )


def test_an_alias_is_waited_for_and_what_serves_goes_on_serving():
    platform = applied(small())
    world, chosen = World(platform), small().deployment(checkpoint="@champion")
    apply(world, plan(world, chosen.state(), target="local"), chosen.state(), Consent.APPROVED)
    assert served(platform).state == "serving"
    assert served(applied(chosen)).message == "waiting for alias champion on words-grpo"


def test_a_deployment_whose_experiment_left_keeps_what_it_serves():
    platform = applied(small())
    document = platform.observe(small().owner).resources[EXPERIMENT]
    platform.retire(EXPERIMENT, small().owner, etag=document.etag)
    assert served(platform).state == "serving"


def test_a_run_others_share_is_not_stopped_by_a_retirement():
    stack = small().experiment("again")
    platform = applied(stack, RunScript.stays_queued())
    document = platform.observe(stack.owner).resources[EXPERIMENT]
    platform.retire(EXPERIMENT, stack.owner, etag=document.etag)
    assert platform.run_status("r_0001").state is RunState.QUEUED


def test_a_version_that_returns_takes_the_run_others_have_made_since():
    """Its own run failed; an equal one completed under another name."""
    platform = applied(small(), RunScript.fails())
    world = World(platform)
    platform._ledger.script = RunScript.completes()
    for stack in (small(set={"algorithm.lr": 3e-5}).experiment("again"), small().experiment("again")):
        apply(world, plan(world, stack.state(), target="local"), stack.state(), Consent.APPROVED)
    seen = platform.observe(small().owner).resources
    document, again = seen[EXPERIMENT], seen[Address("experiment", "again")]
    assert (document.version, document.run.run_id) == (1, again.run.run_id)
    assert document.run.run_id != "r_0001"
