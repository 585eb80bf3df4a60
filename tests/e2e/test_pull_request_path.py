"""The example workflows, step by step: their `run:` blocks under bash against a real server and a loopback GitHub.

No model is trained; runs stay queued, or complete by a script where their results matter.
"""

from __future__ import annotations

import json
import shutil
import time

import pytest
from ci_job import connected, planned, repo, served
from github_api import FORK_TOKEN, PAGE, github_api

from arena_gitops.report.marker import Marker

__all__ = ["connected", "github_api", "repo", "served"]

pytestmark = pytest.mark.slow


def test_a_pull_request_is_planned_merged_and_applied_as_it_was_approved(connected, github_api):
    repo = connected
    repo.commit("All of it")
    for n in range(PAGE + 5):
        github_api.say(7, "ada", f"something to talk about: {n}")
    first = planned(repo, 7)
    assert first.code == 0, first.out
    (body,) = github_api.bodies(7)
    assert first.outputs == {"plan_id": Marker.find(body).plan_id, "applyable": "true", "changes": "true"}
    assert f"experiment/{repo.name}-grpo | create" in body
    assert f"experiment/{repo.name}-grpo | create" in first.summary
    assert "::notice file=experiments/word-problems-grpo.yaml" in first.out

    github_api.say(7, "mallory", body.replace("sha256:", "sha256:f00"))
    github_api.say(7, "github-actions[bot]", body)
    github_api.refusals = [
        (403, {"message": "You have exceeded a secondary rate limit"}, {"Retry-After": "1"})
    ]
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    head = repo.commit("Another learning rate")
    second = planned(repo, 7)
    older, body = github_api.bodies(7)
    assert (Marker.find(older).plan_id, Marker.find(older).state) == (first.outputs["plan_id"], "superseded")
    assert Marker.find(body).plan_id == second.outputs["plan_id"] != first.outputs["plan_id"]

    repo.squash(7, head)
    applied = repo.job("arena-apply.yml", "push", {})
    assert applied.code == 0, applied.out
    _, body = github_api.bodies(7)
    assert Marker.find(body).state == "applied"
    assert "**Applied.** [job summary](https://github.example/team/infra/actions/runs/42)" in body

    again = repo.job("arena-apply.yml", "push", {})
    assert again.code == 0, again.out
    assert "Nothing is left to do." in again.out


def test_what_is_no_longer_as_approved_is_not_applied_and_can_be_approved_again(connected, github_api):
    repo = connected
    head = repo.commit("All of it")
    planned(repo, 7)
    approved = Marker.find(github_api.bodies(7)[0]).plan_id
    repo.edit("deployments/word-problems.yaml", r"\bmin: [\d.]+", "min: 0.93")
    repo.commit("Something else got merged, too")
    repo.squash(7, head)

    refused = repo.job("arena-apply.yml", "push", {})
    assert refused.code == 4, refused.out
    comment = github_api.bodies(7)[1]
    assert f"~ deployment/{repo.name}: create is not what was approved" in comment
    assert approved in comment
    assert refused.outputs["plan_id"] in comment
    assert repo.job("arena-apply.yml", "push", {}).code == 4
    assert len(github_api.bodies(7)) == 2

    other = repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=approved)
    assert other.code == 4, other.out
    by_hand = repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=refused.outputs["plan_id"])
    assert by_hand.code == 0, by_hand.out
    shown, told = github_api.bodies(7)
    assert Marker.find(shown).state == "superseded"
    assert refused.outputs["plan_id"] in shown
    assert "Applied to prod by a second approval" in told
    assert f"~ deployment/{repo.name}: create is not what was approved" in told

    again = repo.job("arena-apply.yml", "push", {})
    assert again.code == 0, again.out
    assert github_api.bodies(7) == [shown, told]


def test_a_change_that_costs_nothing_is_taken_where_the_workflow_says_so(connected, github_api):
    repo = connected
    repo.edit(
        ".github/workflows/arena-apply.yml", "--expect-approved-plan", r"\g<0> --accept-plan-change no-cost"
    )
    head = repo.commit("All of it")
    planned(repo, 7)
    repo.edit("experiments/project.yaml", "description: .*", "description: Read by people only")
    repo.commit("Something else got merged, too")
    repo.squash(7, head)
    taken = repo.job("arena-apply.yml", "push", {})
    assert taken.code == 0, taken.out
    assert Marker.find(github_api.bodies(7)[0]).state == "applied"
    assert "although the plan has changed" in github_api.bodies(7)[1]
    assert f"~ project/{repo.name}" in github_api.bodies(7)[1]

    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    head = repo.commit("Another learning rate")
    planned(repo, 8)
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.9e-4")
    repo.commit("And yet another")
    repo.squash(8, head)
    assert repo.job("arena-apply.yml", "push", {}).code == 4


def test_the_rest_of_an_approved_plan_goes_on_and_nothing_else_does(connected, github_api):
    """An apply that was cut short has done some of the approved changes; each of the others is as approved."""
    repo = connected
    head = repo.commit("All of it")
    whole = planned(repo, 7)
    shutil.move(repo.root / "deployments", repo.scratch / "deployments")
    repo.commit("As if cut short before the deployment")
    part = planned(repo, 8)
    assert repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=part.outputs["plan_id"]).code == 0
    shutil.move(repo.scratch / "deployments", repo.root / "deployments")
    repo.commit("All of it")
    repo.squash(7, head)

    rest = repo.job("arena-apply.yml", "push", {})
    assert rest.code == 0, rest.out
    assert rest.outputs["plan_id"] not in {whole.outputs["plan_id"], part.outputs["plan_id"]}
    assert f"deployment/{repo.name}" in rest.out


def test_a_commit_nobody_approved_is_not_applied(connected, github_api):
    connected.commit("Pushed to main")
    pushed = connected.job("arena-apply.yml", "push", {})
    assert pushed.code == 3
    assert "came from no merged pull request" in pushed.out

    head = connected.git("rev-parse", "HEAD")
    github_api.say(9, "mallory", "no plan here")
    connected.squash(9, head)
    assert connected.job("arena-apply.yml", "push", {}).code == 3


def test_a_comment_of_an_older_commit_is_no_approval_of_a_newer_one(connected, github_api):
    connected.commit("All of it")
    planned(connected, 7)
    head = connected.commit("Pushed later")
    connected.squash(7, head)
    late = connected.job("arena-apply.yml", "push", {})
    assert late.code == 4
    assert "was made for commit" in late.out


def test_a_fork_gets_an_offline_plan_and_its_comment_from_the_second_workflow(repo, github_api):
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    head = repo.commit("A stranger's change")
    event = repo.pull_event(11, source="stranger/infra")
    checked = repo.job("arena-plan.yml", "pull_request", event, token=FORK_TOKEN)
    assert checked.code == 0, checked.out
    assert "experiment/word-problems-grpo | new version" in checked.summary
    assert checked.outputs["plan_id"] == ""
    assert github_api.bodies(11) == []
    assert not [line for line in github_api.asked if line.startswith(("POST", "PATCH"))]

    artifact = repo.scratch / "arena"
    artifact.mkdir()
    shutil.move(repo.root / "arena-plan.json", artifact)
    run = {
        "id": 41,
        "head_sha": head,
        "head_branch": "topic",
        "pull_requests": [],
        "head_repository": {"owner": {"login": "stranger"}},
    }
    told = repo.job("arena-comment.yml", "workflow_run", {"workflow_run": run})
    assert told.code == 0, told.out
    (body,) = github_api.bodies(11)
    assert "experiment/word-problems-grpo | new version" in body
    assert "approves nothing" in body
    assert Marker.find(body).plan_id is None

    elsewhere = repo.job("arena-comment.yml", "workflow_run", {"workflow_run": {**run, "head_sha": "c" * 40}})
    assert elsewhere.code == 3
    (artifact / "arena-plan.json").write_text('{"kind": "arena.ci", "target": 1}')
    assert repo.job("arena-comment.yml", "workflow_run", {"workflow_run": run}).code == 64
    assert len(github_api.bodies(11)) == 1


def test_a_broken_repository_replaces_its_plan_and_is_annotated(connected, github_api):
    connected.commit("All of it")
    planned(connected, 7)
    connected.edit("experiments/word-problems-grpo.yaml", r"reward: \S+", "reward: nothing")
    connected.commit("A mistake")
    broken = planned(connected, 7)
    assert broken.code == 65
    assert "::error file=experiments/word-problems-grpo.yaml" in broken.out
    (body,) = github_api.bodies(7)
    assert Marker.find(body).plan_id is None
    assert "No plan for" in body


CANARY = "sk-ant-api03-" + "Q7" * 40


def left_behind(repo, github_api, *said):
    """Everything a job leaves: its log, page and outputs, comments, plan files, journals, caches and settings."""
    texts = {f"said {number}": text for number, text in enumerate(said)}
    texts |= {"comments": json.dumps(github_api.comments), "asked": json.dumps(github_api.asked)}
    journals = list((repo.root / ".git" / "arena").glob("*"))
    plans = list(repo.root.glob("*.json"))
    files = [path for path in repo.scratch.rglob("*") if path.is_file() and path.name != "step.sh"]
    assert journals
    return texts | {str(path): path.read_text(errors="replace") for path in [*journals, *plans, *files]}


def test_secrets_are_in_nothing_that_a_job_leaves_behind(connected, github_api):
    """The key of the server after an apply that worked; a literal in the repository after it was refused."""
    repo = connected
    head = repo.commit("All of it")
    said = [planned(repo, 7)]
    repo.squash(7, head)
    said.append(repo.job("arena-apply.yml", "push", {}))
    assert [done.code for done in said] == [0, 0]
    key = repo.secrets["ARENA_APPLY_KEY"]
    found = left_behind(repo, github_api, *(f"{done.out}{done.summary}{done.outputs}" for done in said))
    assert [where for where, text in found.items() if key in text] == []
    repo.edit("experiments/word-problems-grpo.yaml", r"(?m)^description: .*$", f"description: {CANARY}")
    repo.edit("manifests/word_problems_grpo.yaml", r"(?m)^", f"# {CANARY}\n")
    repo.edit("rewards/word_problems.py", r"(?m)^import ", f"KEY = '{CANARY}'\nimport ")
    rows = repo.root / "data" / "word_problems.csv"
    rows.write_text(f"{CANARY},{rows.read_text()}")
    head = repo.commit("A key in four places")
    refused = [planned(repo, 7)]
    repo.squash(7, head)
    refused.append(repo.job("arena-apply.yml", "push", {}))
    assert [done.code for done in refused] == [65, 65]
    assert refused[0].out.count("secret") >= 4
    found = left_behind(repo, github_api, *(f"{done.out}{done.summary}{done.outputs}" for done in refused))
    assert [where for where, text in found.items() if CANARY in text] == []


def test_a_merge_queue_has_no_comment_and_says_it_on_its_page(connected, github_api):
    connected.commit("All of it")
    queued = connected.job("arena-plan.yml", "merge_group", {"merge_group": {}})
    assert queued.code == 0, queued.out
    assert f"{connected.name}-grpo" in queued.summary
    assert github_api.asked == []


def test_a_key_is_not_sent_where_a_pull_request_points_it(connected, github_api):
    connected.edit("arena.yaml", connected.base_url, github_api.url)
    connected.commit("Send me the key")
    stolen = planned(connected, 7)
    assert stolen.code == 6
    assert not [line for line in github_api.asked if "/api/" in line]


def test_drift_is_one_issue_that_is_closed_when_there_is_none(connected, github_api):
    """Not applied yet is drift, too."""
    repo = connected
    repo.commit("All of it")
    for _ in range(2):
        looked = repo.job("arena-drift.yml", "schedule", {})
        assert looked.code == 0, looked.out
        assert looked.outputs == {"drift": "true"}
    (issue,) = github_api.issues
    assert issue["labels"] == ["arena-drift"]
    assert f"deployment/{repo.name}: not on the platform" in issue["body"]
    assert len([line for line in github_api.asked if line.startswith(("POST", "PATCH"))]) == 1

    wanted = planned(repo, 7).outputs["plan_id"]
    assert repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=wanted).code == 0
    assert repo.job("arena-drift.yml", "schedule", {}).outputs == {"drift": "false"}
    assert issue["state"] == "closed"


def test_a_cancelled_apply_ends_in_time_and_the_next_one_converges(connected, github_api):
    repo = connected
    head = repo.commit("All of it")
    planned(repo, 7)
    repo.squash(7, head)
    repo.cancel_at = f"checking experiment/{repo.name}-grpo"
    cancelled = repo.job("arena-apply.yml", "push", {})
    assert cancelled.code == 143, cancelled.out
    assert time.monotonic() - repo.cancelled <= 5
    assert "nobody holds the lease" in repo.arena("unlock", "--target", "prod")
    assert Marker.find(github_api.bodies(7)[0]).state == "open"

    repo.cancel_at = ""
    again = repo.job("arena-apply.yml", "push", {})
    assert again.code == 0, again.out
    assert Marker.find(github_api.bodies(7)[0]).state == "applied"
