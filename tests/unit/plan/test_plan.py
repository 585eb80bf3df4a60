"""Reuse, costs, units, promotions, and what identifies a plan."""

import json
from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.plan.build import build
from arena_gitops.plan.cost import duration
from arena_gitops.plan.model import Action, Plan
from arena_gitops.plan.units import units_of
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.job import RunState
from arena_gitops.spec.manifest import parse_manifest
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Tier
from arena_gitops.state import ObservedState

MEDIUM = Tier(id="medium", num_cpus=8, ram_gb=32, credits_per_node_hour=2.0)
FREE = Tier(id="free", num_cpus=8, ram_gb=32, credits_per_node_hour=0.0)
EXPERIMENT = Address("experiment", "words-grpo")


def test_an_equal_run_is_reused_under_another_name_for_nothing(scene):
    here = scene(tiers=[MEDIUM]).applied(small())
    change = here.change(small().experiment("again"), "experiment/again")
    assert (change.action, change.cost.max) == (Action.REUSE, 0.0)
    assert "words-grpo v1" in change.message


def test_a_revert_is_free(scene):
    here = scene().applied(small(), small(set={"algorithm.lr": 3e-5}))
    change = here.change(small())
    assert (change.action, change.reason) == (Action.REUSE, "semantic_change")
    told = here.change(small(), "deployment/words")
    assert told.action is Action.NOOP
    assert told.message == "promote best of the run it goes back to (rollback: nothing is trained)"


def test_an_equal_run_that_is_too_short_is_no_reuse(scene):
    here = scene().applied(small())
    change = here.change(small().experiment("longer", set={"training.max_steps": 5000}), "experiment/longer")
    assert change.action is Action.CREATE
    assert any("continues run" in note for note in change.notes)


def test_a_preview_takes_the_run_of_main_or_trains_its_own(scene):
    here = scene().applied(small())
    preview = replace(small(), namespace="pr-12")
    assert here.change(preview).action is Action.REUSE
    longer = here.change(replace(small(set={"training.max_steps": 5000}), namespace="pr-12"))
    assert longer.action is Action.CREATE
    assert any("a preview does not lengthen run" in note for note in longer.notes)
    longer = here.change(replace(small(set={"training.max_steps": 5000}), namespace="staging"))
    assert any("namespace staging does not lengthen run" in note for note in longer.notes)


def test_a_failed_run_is_no_result_to_reuse(scene):
    here = scene(runs=RunScript.fails()).applied(small())
    assert here.change(small().experiment("again"), "experiment/again").action is Action.CREATE


@pytest.mark.parametrize(
    ("fields", "rate", "ceiling"),
    [
        ({"tier": "medium", "budget": {"max_runtime_s": 1800.0}}, 2.0, 1.0),
        ({"tier": "medium", "num_nodes": 3, "budget": {"max_runtime_s": 3600.0}}, 6.0, 6.0),
        ({"tier": "medium", "budget": {"max_runtime_s": 36000.0, "max_credits": 3}}, 2.0, 3.0),
        ({"tier": "medium", "budget": {"max_credits": 3}}, 2.0, 3.0),
        ({"tier": "medium"}, 2.0, None),
        ({"tier": "free"}, 0.0, 0.0),
        ({"tier": "elsewhere", "budget": {"max_runtime_s": 3600.0}}, None, None),
        ({"tier": "elsewhere", "budget": {"max_credits": 3}}, None, 3.0),
        ({"budget": {"max_runtime_s": 3600.0}}, 2.0, 2.0),
    ],
)
def test_the_ceiling_of_a_run(scene, fields, rate, ceiling):
    cost = scene(tiers=[MEDIUM, FREE]).change(small(**fields)).cost
    assert (cost.rate, cost.max) == (rate, ceiling)
    assert cost.basis


def test_without_tiers_every_cost_is_unknown(scene):
    plan = scene().plan(small())
    assert (plan.cost.max_new, plan.cost.rate_per_hour, plan.cost.unknown) == (0.0, 0.0, 2)


def test_time_is_written_without_zero_parts():
    assert [duration(s) for s in (0, 59, 3600, 5400, 3661)] == ["0s", "59s", "1h", "1h30m", "1h1m1s"]


def test_the_units_of_the_published_tutorial(shared):
    from ruamel.yaml import YAML

    raw = YAML(typ="safe").load((shared / "manifests/tutorial_gsm8k_grpo.yaml").read_text())
    units = units_of(parse_manifest(raw).manifest)
    assert (units.iterations, units.generations, units.total) == (2084, 416, 2 * 2084 * 48)


def test_sft_counts_rows(scene):
    notes = scene().change(small(set={"algorithm": {"name": "SFT", "batch_size": 8}})).notes
    assert "2 members: 125 iterations of 8 rows each" in notes[0]


def test_epochs_replace_max_steps_and_no_number_is_invented(scene):
    notes = scene().change(small(set={"training.num_epochs": 3})).notes
    assert notes == (
        "GRPO, 2 members: 3 epochs over the training rows, 8 completions for each",
        "max_steps follows num_epochs; the 1,000 of the manifest are not used",
    )


def test_more_epochs_are_a_new_version_because_no_run_goes_on_for_them(scene):
    here = scene().applied(small(set={"training.num_epochs": 3}))
    assert here.change(small(set={"training.num_epochs": 5})).action is Action.NEW_VERSION


def test_max_steps_start_nothing_where_epochs_replace_them(scene):
    here = scene().applied(small(set={"training.num_epochs": 3}))
    change = here.change(small(set={"training.num_epochs": 3, "training.max_steps": 2000}))
    assert (change.action, change.reason) == (Action.UPDATE, "budget_recorded")


def test_a_plan_knows_what_only_apply_can_tell(scene):
    here = scene()
    assert here.change(small()).unknown == ("version", "run_id", "checkpoint")
    assert here.change(small(), "deployment/words").unknown == ("revision", "url")


def test_a_running_run_and_its_coming_promotion_are_no_changes(scene):
    here = scene(runs=RunScript.stays_running(step=100)).applied(small())
    plan = here.plan(small())
    assert not plan.has_changes
    assert [c.message for c in plan.changes] == [
        "running, step 100 of 1,000",
        "pending: promote best when v1 ends",
    ]


@pytest.mark.parametrize(
    ("deployment", "action", "text"),
    [
        ({"checkpoint": "@champion"}, Action.PENDING, "champion"),
        ({"gate": {"metric": "eval/reward", "min": 2.0, "min_delta": None}}, Action.HELD, "2"),
        ({"checkpoint": "step_1"}, Action.HELD, "no checkpoint step_1"),
        ({"best": {"metric": "eval/loss", "mode": "min"}}, Action.HELD, "no checkpoint has eval/loss"),
    ],
)
def test_a_deployment_that_does_not_serve_says_why(scene, deployment, action, text):
    stack = small().deployment(**deployment)
    change = scene().applied(stack).change(stack, "deployment/words")
    assert change.action is action
    assert text in change.message
    assert not change.action.acts


def test_progress_does_not_change_the_id_of_a_plan(scene):
    here = scene(runs=RunScript.stays_running(step=1)).applied(small())
    stack = small(description="newer")
    first = here.plan(stack)
    here.platform.play(here.run(stack), RunScript.stays_running(step=900))
    assert here.plan(stack).plan_id == first.plan_id


def test_another_outcome_is_another_plan(scene):
    here = scene()
    ids = {here.plan(small(set={"algorithm.lr": lr})).plan_id for lr in (1e-5, 2e-5)}
    assert len(ids) == 2


def test_prices_and_lines_are_not_part_of_the_id(scene):
    moved = small()
    resource = moved.resources[EXPERIMENT]
    moved.resources[EXPERIMENT] = replace(resource, span=replace(resource.span, line=99))
    assert scene(tiers=[MEDIUM]).plan(small()).plan_id == scene().plan(moved).plan_id


def test_the_document_is_canonical_json_with_published_names(scene):
    plan = scene().applied(small()).plan(small(set={"algorithm.lr": 3e-5}))
    document = json.loads(plan.to_json())
    (change,) = [c for c in document["changes"] if c["address"] == "experiment/words-grpo"]
    assert document["kind"] == "arena.plan"
    assert document["format_version"] == "1.0"
    assert change["fields"][0]["class"] == "semantic"
    assert Plan.from_json(plan.to_json()) == plan


def test_a_platform_that_could_not_say_what_it_trains_is_taken_at_our_word():
    observed = ObservedState(platform="http", algorithms=None)
    assert build(small().state(), observed, target="local").applyable


def test_a_semantic_field_that_trains_nothing_new_is_an_update(scene):
    """The fingerprint has the last word: it may leave out what the field table calls semantic."""
    here = scene().applied(small())
    stack = small(set={"algorithm.lr": 3e-5})
    same = small().resources[EXPERIMENT].fingerprint
    stack.resources[EXPERIMENT] = replace(stack.resources[EXPERIMENT], fingerprint=same)
    assert here.change(stack).action is Action.UPDATE


def test_what_a_deleted_version_waited_for_is_not_promised(scene):
    here = scene(runs=RunScript(RunState.STOPPED, step=5)).applied(small())
    assert here.change(small(), "deployment/words").message == "pending: v1 was stopped"


def test_metadata_of_parents_is_not_a_reason():
    child = fingerprint({"a": 1}, {}, [fingerprint({}, {"text": "old"})])
    assert child.run == fingerprint({"a": 1}, {}, [fingerprint({}, {"text": "new"})]).run
