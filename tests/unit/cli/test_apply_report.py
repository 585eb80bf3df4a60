"""What an apply prints on its way and at its end, over a platform in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from stacks import small

from arena_gitops.app import World
from arena_gitops.apply.events import Checked, CheckStarted, StepResult, StepStarted, Uploaded
from arena_gitops.apply.wait import Patience, Until
from arena_gitops.cli.applying import Approval, Job, carry_out
from arena_gitops.cli.follow import Follower, step_line
from arena_gitops.cli.session import Session
from arena_gitops.errors import BlockedError, CheckFailedError, StaleError
from arena_gitops.plan.model import Action
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.platforms.scripted import RunScript
from arena_gitops.spec.wire import CheckResult
from arena_gitops.state import Blob, Policy


@pytest.fixture
def do():
    """Apply a stack with `--yes --wait complete` and give back the session."""

    def call(stack, *, runs=None, json_=False, approval=Approval(yes=True, plan_id=None)):  # noqa: B008 - frozen
        session = Session()
        session.json = json_
        follower = Follower(session)
        world = World(MemoryPlatform(runs=runs or RunScript.completes()), listener=follower)
        job = Job(stack.state(), "local", approval, frozenset(), Patience(Until.COMPLETE))
        carry_out(session, follower, job, world)

    return call


def test_plan_steps_and_outcome_are_on_stdout_and_progress_on_stderr(do, capsys):
    do(small())
    out, err = capsys.readouterr()
    positions = [
        out.index(text) for text in ("Plan: 5 to create", "experiment/words-grpo  created", "best checkpoint")
    ]
    assert positions == sorted(positions)
    assert "deployment/words: serving" in out
    assert "checking experiment/words-grpo" in err


def test_a_failed_run_is_an_error_after_its_outcome(do, capsys):
    with pytest.raises(CheckFailedError, match="words-grpo"):
        do(small(), runs=RunScript.fails())
    assert "experiment/words-grpo: failed" in capsys.readouterr().out


def test_the_one_json_document_holds_plan_steps_runs_and_the_error(do, capsys):
    with pytest.raises(CheckFailedError):
        do(small(), runs=RunScript.fails(), json_=True)
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["kind"] == "arena.plan"
    assert len(document["steps"]) == 5
    assert [run["state"] for run in document["runs"]] == ["failed"]
    assert document["error"]["exit_code"] == 10


def test_a_blocked_plan_is_printed_and_refused(do, capsys):
    stack = replace(small(), policy=Policy(require_owner=True))
    with pytest.raises(BlockedError):
        do(stack)
    assert "require_owner" in capsys.readouterr().out


def test_another_plan_than_the_approved_one_is_stale(do, capsys):
    with pytest.raises(StaleError):
        do(small(), approval=Approval(yes=False, plan_id="sha256:" + "0" * 64))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (
            StepResult("experiment/e", Action.NEW_VERSION, "applied", version=2, run_id="r_1"),
            "experiment/e  new version  v2, run r_1",
        ),
        (StepResult("reward/r", Action.RETIRE, "applied"), "reward/r  retired"),
        (
            StepResult("deployment/d", Action.CREATE, "skipped", "dependency failed: experiment/e"),
            "deployment/d  skipped  dependency failed: experiment/e",
        ),
    ],
)
def test_a_step_is_one_line(step, line):
    assert step_line(step) == line


def test_uploads_and_verdicts_go_to_stderr(tmp_path, capsys):
    follower = Follower(Session())
    follower(Uploaded(Blob("sha256:x", tmp_path / "data.csv", 1), 1, 2))
    follower(CheckStarted("experiment/e"))
    follower(
        Checked("experiment/e", CheckResult(address="reward/r", name="cases", status="fail", message="no"))
    )
    follower(StepStarted("experiment/e", Action.CREATE))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "uploaded data.csv (1/2)",
        "checking experiment/e",
        "  FAIL reward/r cases: no",
    ]
