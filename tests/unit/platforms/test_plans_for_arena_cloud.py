"""What a plan says of a platform that knows names only: every line of its capability table that a plan can meet."""

import pytest
from stacks import ROWS, Stack

from arena_gitops.plan.build import build
from arena_gitops.plan.model import Action
from arena_gitops.plan.scope import Scope
from arena_gitops.platforms.arena_cloud.names import VersionName, content_of, dataset_name
from arena_gitops.platforms.arena_cloud.seen import Seen, Version, deployments_of
from arena_gitops.platforms.arena_cloud.state import observed
from arena_gitops.platforms.arena_rows import CheckpointRow, Deployment, Experiment
from arena_gitops.report.text import render
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner

EXPERIMENT = Address("experiment", "words-grpo")
OWNER = Owner(stack="team")


def stack(rows=ROWS, source=None, deployment=None, **experiment):
    made = Stack().project().dataset(rows=rows)
    made = made.reward(source=source) if source else made.reward()
    return made.experiment(**{"project": "words", **experiment}).deployment(**(deployment or {}))


def version(of, number=1, status="completed", fitness=0.7, **row):
    name = VersionName.of("words-grpo", number, content_of(of.resources[EXPERIMENT].spec), OWNER)
    exports = (CheckpointRow(name="step_1000", steps=1000, fitness=fitness),) if status == "completed" else ()
    row = {"max_steps": 1000, "step": 1000, **row}
    return Version(name, Experiment(name=str(name), status=status, **row), exports)


def seen(*versions, of=None, deployed=()):
    rows = (of or stack()).resources[Address("dataset", "words")].spec
    served = (Deployment(name=str(v.name), status="serving", url="https://x/i/y") for v in deployed)
    return Seen(
        projects=frozenset({"words"}),
        datasets=frozenset({dataset_name("words", rows)}),
        versions=versions,
        deployments=deployments_of(OWNER, served),
    )


def plan(of, there, **scope):
    desired = of.state()
    found = observed(desired.owner, desired.resources, there, "https://arena.example.org")
    return build(desired, found, target="hosted", scope=Scope(**scope), allow=frozenset({"interrupt"}))


def change(planned, address):
    found = [change for change in planned.changes if change.address == address]
    return found[0] if found else None


def actions(planned):
    return {c.address: c.action for c in planned.changes if c.action is not Action.NOOP}


def test_into_nothing_everything_is_made_and_the_deployment_waits_for_its_run():
    planned = plan(stack(), Seen())
    assert actions(planned) == {
        "project/words": Action.CREATE,
        "dataset/words": Action.CREATE,
        "experiment/words-grpo": Action.CREATE,
        "deployment/words": Action.PENDING,
    }
    assert "deployed by the first apply after that" in render(planned)


def test_once_its_run_has_ended_it_is_deployed_and_then_there_is_nothing_to_do():
    done = version(stack())
    assert actions(plan(stack(), seen(done))) == {"deployment/words": Action.CREATE}
    assert not plan(stack(), seen(done, deployed=[done])).has_changes


@pytest.mark.parametrize("status", ["queued", "running", "something new"])
def test_while_it_works_there_is_nothing_to_do_and_it_is_never_started_again(status):
    planned = plan(stack(), seen(version(stack(), status=status)))
    assert actions(planned) == {"deployment/words": Action.PENDING}
    unknown = "running, step 1,000 of 1,000; the platform says 'something new', which is taken for running"
    assert (unknown in render(planned)) == (status == "something new")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_what_failed_or_was_stopped_is_held(status):
    assert change(plan(stack(), seen(version(stack(), status=status))), str(EXPERIMENT)).action is Action.HELD


def test_other_work_is_a_new_version_and_what_differs_is_said_not_to_be_known():
    before = version(stack())
    planned = plan(stack(set={"algorithm.lr": 3e-5}), seen(before, deployed=[before]))
    found = change(planned, str(EXPERIMENT))
    assert found.action is Action.NEW_VERSION
    assert before.name.short in found.message
    assert "keeps no content" in found.message
    assert change(planned, "deployment/words").action is Action.PENDING
    assert [c for c in planned.checks if c.name == "leftovers"] == []


def test_going_back_costs_nothing():
    first, second = version(stack()), version(stack(set={"algorithm.lr": 3e-5}), 2)
    assert str(EXPERIMENT) not in actions(plan(stack(), seen(first, second)))


def test_going_back_while_the_later_version_works_reuses_the_first_and_stops_that():
    first, second = version(stack()), version(stack(set={"algorithm.lr": 3e-5}), 2, status="running")
    found = change(plan(stack(), seen(first, second)), str(EXPERIMENT))
    assert (found.action, found.interrupts, found.cost.max) == (Action.REUSE, True, 0.0)


def test_new_rows_make_it_stale_and_are_trained_on_only_when_asked_for():
    newer = stack(rows=ROWS + "a,b\n")
    there = seen(version(stack()))
    planned = plan(newer, there)
    assert change(planned, str(EXPERIMENT)).action is Action.STALE
    assert change(planned, "dataset/words").action is Action.NEW_VERSION
    asked = plan(newer, there, rerun_stale=("dataset/words",))
    assert change(asked, str(EXPERIMENT)).action is Action.NEW_VERSION


def test_more_steps_resume_what_has_ended_and_wait_for_what_works():
    more = stack(set={"training.max_steps": 2000})
    assert change(plan(more, seen(version(stack()))), str(EXPERIMENT)).action is Action.RESUME
    found = change(plan(more, seen(version(stack(), status="running"))), str(EXPERIMENT))
    assert found.action is Action.PENDING
    assert "the next apply resumes it" in found.message


def test_fewer_steps_another_tier_or_a_description_are_no_changes_there():
    other = stack(set={"training.max_steps": 500}, tier="gpu", description="newer")
    assert str(EXPERIMENT) not in actions(plan(other, seen(version(stack()))))


def test_a_new_name_for_the_same_work_is_no_change():
    renamed = Stack().project().dataset().reward().experiment("renamed", project="words")
    assert not plan(renamed, seen(version(stack()))).has_changes


def test_what_is_removed_is_forgotten_once_its_run_is_stopped():
    without = Stack().project().dataset().reward()
    found = change(plan(without, seen(version(stack(), status="running"))), str(EXPERIMENT))
    assert (found.action, found.interrupts) == (Action.RETIRE, True)
    assert not plan(without, seen(version(stack(), status="stopped"))).has_changes


def test_destroy_stops_what_works_and_says_that_the_rest_stays():
    planned = plan(stack(), seen(version(stack(), status="running")), destroy=True)
    assert change(planned, str(EXPERIMENT)).action is Action.RETIRE
    assert not planned.applyable
    assert "nothing is deleted by us" in change(planned, "dataset/words").message


def test_what_serves_on_is_named_by_every_plan():
    first, second = version(stack()), version(stack(set={"algorithm.lr": 3e-5}), 2)
    planned = plan(stack(set={"algorithm.lr": 3e-5}), seen(first, second, deployed=[first, second]))
    assert not planned.has_changes
    assert f"{first.name} goes on serving" in render(planned)
    without = Stack().project().dataset().reward()
    assert f"{first.name} goes on serving" in render(plan(without, seen(first, deployed=[first])))


def test_a_gate_is_judged_by_the_plan():
    gate = {"gate": {"metric": "eval/reward", "min": 0.6, "min_delta": None}}
    good, poor = version(stack()), version(stack(), fitness=0.5)
    assert change(plan(stack(deployment=gate), seen(good)), "deployment/words").action is Action.CREATE
    held = change(plan(stack(deployment=gate), seen(poor)), "deployment/words")
    assert (held.action, "0.5 is below" in held.message) == (Action.HELD, True)
    unknown = change(plan(stack(deployment=gate), seen(version(stack(), fitness=None))), "deployment/words")
    assert (unknown.action, "says no fitness" in unknown.message) == (Action.HELD, True)


def changed(address, **fields):
    made = stack()
    at = Address.parse(address)
    resource = made.resources[at]
    spec = {**resource.spec, **fields}
    made.resources[at] = type(resource)(at, spec, resource.fingerprint, resource.depends_on, resource.blobs)
    return made


SHA = "sha256:" + "0" * 64
CANNOT = {
    "a pinned row of the hub": (changed("dataset/words", hf={"id": "a/b", "revision": "0" * 40}), "revision"),
    "json lines": (changed("dataset/words", format="jsonl"), "JSON lines"),
    "start weights": (
        stack(inputs={**stack().resources[EXPERIMENT].spec["inputs"], "base": {"experiment": "x"}}),
        "start weights",
    ),
    "no project": (stack(project=None), "listed by project"),
    "an alias": (stack(deployment={"checkpoint": "@champion"}), "alias"),
    "a member": (stack(deployment={"checkpoint": "step_5/m1"}), "step_N"),
    "another metric": (stack(deployment={"gate": {"metric": "test/accuracy", "min": 1}}), "test/accuracy"),
    "two deployments": (stack().deployment("again"), "deployed once"),
    "an environment": (Stack()._add("environment", "maze", {"files": {}}), "environments"),
    **{
        f"a reward with {key}": (
            stack(
                inputs={
                    **(i := stack().resources[EXPERIMENT].spec["inputs"]),
                    "reward": {**i["reward"], key: value},
                }
            ),
            text,
        )
        for key, value, text in (
            ("files", {"a.py": SHA, "rewards/exact.py": SHA}, "one file"),
            ("requirements", ["x"], "requirements"),
            ("secrets", ["KEY"], "secrets"),
            ("network", "full", "network"),
        )
    },
}


@pytest.mark.parametrize("what", CANNOT)
def test_what_it_cannot_do_blocks_the_plan_by_name(what):
    made, said = CANNOT[what]
    there = (
        seen(version(stack()))
        if "deploy" in what or what in {"an alias", "a member", "another metric"}
        else Seen()
    )
    planned = plan(made, there)
    assert not planned.applyable
    blocked = [c.message for c in planned.changes if c.action is Action.BLOCKED]
    assert any(said in message for message in blocked), planned.changes


def test_what_it_will_not_act_on_is_said_beside_the_price():
    made = stack(budget={"max_runtime_s": 3600.0, "max_credits": None}, retry={"max": 1})
    assert "not acted on there: budget.max_runtime_s, retry of experiment/words-grpo" in render(
        plan(made, Seen())
    )
