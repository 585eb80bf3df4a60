"""The action matrix of plan-semantics §2.2, cell by cell, through the planner."""

import pytest
from stacks import small

from arena_gitops.plan.matrix import MATRIX, Cause
from arena_gitops.plan.model import Action
from arena_gitops.plan.phase import Phase
from arena_gitops.platforms.scripted import RunScript

STATES = {
    "queued": RunScript.stays_queued(),
    "running": RunScript.stays_running(step=100),
    "stopped": None,
    "failed": RunScript.fails(step=100, checkpoint=True),
    "completed": RunScript.completes(),
}
CAUSES = {
    "none": {},
    "metadata": {"description": "newer"},
    "steps raised": {"set": {"training.max_steps": 2000}},
    "steps lowered": {"set": {"training.max_steps": 500}},
    "time raised": {"budget": {"max_runtime_s": 7200.0}},
    "time lowered": {"budget": {"max_runtime_s": 60.0}},
    "placement": {"tier": "other"},
    "priority": {"priority": 5},
    "region": {"region": "eu"},
    "observability": {"set": {"training.checkpoint_steps": 7}},
    "rerun": {"rerun": 1},
    "semantic": {"set": {"algorithm.lr": 3e-5}},
}
EXPECTED = {
    #                 queued         running        stopped        failed         completed
    "none":          ["-",           "-",           "held",        "held",        "-"],
    "metadata":      ["update",      "update",      "update",      "update",      "update"],
    "steps raised":  ["update",      "resume",      "resume",      "resume",      "resume"],
    "steps lowered": ["update",      "cap",         "held",        "held",        "noop"],
    "time raised":   ["update",      "update",      "resume",      "resume",      "update"],
    "time lowered":  ["update",      "update",      "update",      "update",      "update"],
    "placement":     ["update",      "migrate",     "resume",      "resume",      "update"],
    "priority":      ["update",      "migrate",     "resume",      "resume",      "update"],
    "region":        ["update",      "migrate",     "resume",      "resume",      "update"],
    "observability": ["update",      "update",      "update",      "update",      "update"],
    "rerun":         ["new_version", "new_version", "new_version", "new_version", "new_version"],
    "semantic":      ["new_version", "new_version", "new_version", "new_version", "new_version"],
}  # fmt: skip
CELLS = [
    (cause, state, action)
    for cause, row in EXPECTED.items()
    for state, action in zip(STATES, row, strict=True)
]


def before(**changed):
    return small(**{"budget": {"max_runtime_s": 3600.0}, **changed})


@pytest.mark.parametrize(("cause", "state", "action"), CELLS)
def test_a_cell_of_the_matrix(scene, cause, state, action):
    here = scene(runs=STATES[state] or RunScript.stays_running(step=100)).applied(before())
    if state == "stopped":
        here.platform.stop_run(here.run(before()))
    change = here.change(before(**CAUSES[cause]))
    found = (
        "-" if change is None or (change.action is Action.NOOP and not change.fields) else change.action.value
    )
    assert found == action
    stops = cause in {"semantic", "rerun", "placement", "priority", "region"} and state == "running"
    assert (change is not None and change.interrupts) == stops


def test_every_cause_has_every_column():
    assert set(MATRIX) == set(Cause)
    assert all(set(row) == set(Phase) for row in MATRIX.values())


def test_the_most_severe_reason_decides(scene):
    here = scene().applied(before())
    changed = before(description="x", tier="y", set={"algorithm.lr": 3e-5, "training.max_steps": 2000})
    change = here.change(changed)
    assert change.action is Action.NEW_VERSION
    assert {field.path: field.action for field in change.fields} == {
        "description": Action.UPDATE,
        "tier": Action.UPDATE,
        "manifest.algorithm.lr": Action.NEW_VERSION,
        "manifest.training.max_steps": Action.RESUME,
    }


def test_the_place_is_that_of_the_deciding_field(scene):
    change = scene().applied(before()).change(before(description="x", set={"algorithm.lr": 3e-5}))
    assert str(change.range).startswith("manifests/words-grpo.yaml:")


@pytest.mark.parametrize(
    ("raised", "action"), [({"training.max_steps": 700}, "update"), ({"training.max_steps": 1300}, "update")]
)
def test_steps_beyond_the_platforms_limit_start_nothing(scene, raised, action):
    stack = before(set={"training.max_steps": 650})
    change = scene(max_steps=600).applied(stack).change(before(set=raised))
    assert change.action.value == action


def test_a_target_that_was_raised_lets_an_early_end_go_on(scene):
    stack = before(set={"training.target_score": 0.5})
    here = scene(runs=RunScript(STATES["completed"].state, step=300, checkpoint=True)).applied(stack)
    assert here.change(before(set={"training.target_score": 0.9})).action is Action.RESUME
    assert here.change(before()).action is Action.RESUME
    assert here.change(before(set={"training.target_score": 0.4})).action is Action.UPDATE


def test_a_run_that_failed_before_its_first_checkpoint_cannot_resume(scene):
    here = scene(runs=RunScript.fails()).applied(before())
    change = here.change(before(set={"training.max_steps": 2000}))
    assert (change.action, change.reason) == (Action.BLOCKED, "no_checkpoint")
