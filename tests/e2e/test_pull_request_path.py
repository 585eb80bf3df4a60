"""The example workflows, step by step: their `run:` blocks under bash against a real server and a loopback GitHub.

What GitHub would do is done here: event files, variables, tokens, merges. No model is trained; runs stay queued.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from github_api import FORK_TOKEN, JOB_TOKEN, REPOSITORY, github_api
from ruamel.yaml import YAML

from arena_gitops.report.marker import Marker

__all__ = ["github_api"]

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "infra-repo"
NO_MLFLOW = "http://127.0.0.1:9"
IDLE_WORKER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def served(tmp_path):
    """Address and token of a real server that trains nothing."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.yaml").write_text(json.dumps({"worker": {"command": IDLE_WORKER}}))
    command = [
        sys.executable,
        "-m",
        "arena_runner.cli",
        "server",
        "--home",
        str(home),
        "--mlflow-uri",
        NO_MLFLOW,
    ]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while not (home / "server.json").exists():
        assert process.poll() is None, (home / "server.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    note = json.loads((home / "server.json").read_text())
    yield f"http://127.0.0.1:{note['port']}", note["token"]
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@dataclass
class Done:
    code: int
    out: str
    summary: str
    outputs: dict[str, str]


@dataclass
class Repo:
    """A clone, and a runner that does in it what a workflow says."""

    root: Path
    api: object
    scratch: Path
    base_url: str = ""
    secrets: dict[str, str] = field(default_factory=dict)
    cancel_at: str = ""
    """a job that prints this is cancelled"""
    cancelled: float = 0.0

    def git(self, *args: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *identity, *args], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def edit(self, path: str, old: str, new: str) -> None:
        """Put other text in the place of the first that matches; what the example says today is its own matter."""
        file = self.root / path
        text, count = re.subn(old, new, file.read_text(), count=1)
        assert count == 1
        file.write_text(text)

    def job(self, workflow: str, name: str, event: dict, *, token: str = JOB_TOKEN, **inputs: str) -> Done:
        """Run the steps of a workflow that call `arena ci` for this event; the last one's outcome."""
        steps = YAML(typ="safe").load(self.root / ".github" / "workflows" / workflow)["jobs"]
        ours = [s for job in steps.values() for s in job["steps"] if "arena ci" in s.get("run", "")]
        ours = [s for s in ours if "if" not in s or f"== '{name}'" in s["if"]]
        assert len(ours) == 1
        return self._step(ours[0], name, event, token, inputs)

    def _step(self, step: dict, name: str, event: dict, token: str, inputs: dict[str, str]) -> Done:
        files = {
            key: self.scratch / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH")
        }
        for file in files.values():
            file.write_text("")
        files["GITHUB_EVENT_PATH"].write_text(json.dumps(event))
        known = {"github.token": token, "vars.ARENA_BASE_URL": self.base_url}
        known |= {f"secrets.{key}": value for key, value in self.secrets.items()}
        known |= {f"inputs.{key}": value for key, value in inputs.items()}
        asked = {
            key: re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: known.get(found[1], ""), value)
            for key, value in step.get("env", {}).items()
        }
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ARENA_", "GITHUB_"))},
            **{key: str(path) for key, path in files.items()},
            **asked,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.scratch),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.api.url,
            "GITHUB_EVENT_NAME": name,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "42",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_SHA": self.git("rev-parse", "HEAD"),
            "RUNNER_TEMP": str(self.scratch),
        }
        script = self.scratch / "step.sh"
        script.write_text(step["run"])
        code, told = self._bash(script, env)
        outputs = re.findall(
            r"^(\w+)<<(\w+)\n(.*?)\n\2$", files["GITHUB_OUTPUT"].read_text(), re.MULTILINE | re.DOTALL
        )
        return Done(
            code,
            told,
            files["GITHUB_STEP_SUMMARY"].read_text(),
            {key: value for key, _, value in outputs},
        )

    def _bash(self, script: Path, env: dict[str, str]) -> tuple[int, str]:
        """As a runner does; it also cancels as one does: a signal to the step's own process."""
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        told: list[str] = []
        with subprocess.Popen(
            command, cwd=self.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                told.append(line)
                if self.cancel_at and self.cancel_at in line:
                    self.cancelled = time.monotonic()
                    process.send_signal(signal.SIGTERM)
        return process.returncode, "".join(told)

    def pull_event(self, number: int, *, source: str = REPOSITORY, base: str = "b" * 40) -> dict:
        """A push to a pull request; the API knows it too."""
        head = self.git("rev-parse", "HEAD")
        self.api.pull(number, head, of=f"{source.partition('/')[0]}:topic")
        side = {"sha": head, "ref": "topic", "repo": {"full_name": source}}
        return {"pull_request": {"number": number, "head": side, "base": {"sha": base, "ref": "main"}}}

    def squash(self, number: int, head: str) -> None:
        """Merge as one new commit, whose sha nobody has seen."""
        self.git("commit", "--quiet", "--amend", "-m", f"Merged #{number}")
        self.api.pull(number, head, merged_as=self.git("rev-parse", "HEAD"))


@pytest.fixture
def repo(tmp_path, github_api):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    root = tmp_path / "clone"
    shutil.copytree(EXAMPLE, root)
    made = Repo(root, github_api, scratch)
    made.git("init", "--quiet", "--initial-branch", "main")
    return made


@pytest.fixture
def connected(repo, served):
    url, token = served
    repo.edit("arena.yaml", "https://arena.example.org", url)
    repo.base_url = url
    repo.secrets = {"ARENA_PLAN_KEY": token, "ARENA_APPLY_KEY": token}
    return repo


def planned(repo: Repo, number: int) -> Done:
    return repo.job("arena-plan.yml", "pull_request", repo.pull_event(number))


def test_a_pull_request_is_planned_merged_and_applied_as_it_was_approved(connected, github_api):
    repo = connected
    repo.commit("All of it")
    first = planned(repo, 7)
    assert first.code == 0, first.out
    (body,) = github_api.bodies(7)
    assert first.outputs == {"plan_id": Marker.find(body).plan_id, "applyable": "true", "changes": "true"}
    assert "experiment/word-problems-grpo | create" in body
    assert "experiment/word-problems-grpo | create" in first.summary
    assert "::notice file=experiments/word-problems-grpo.yaml" in first.out

    github_api.say(7, "mallory", body.replace("sha256:", "sha256:f00"))
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    head = repo.commit("Another learning rate")
    second = planned(repo, 7)
    (body,) = github_api.bodies(7)
    assert Marker.find(body).plan_id == second.outputs["plan_id"] != first.outputs["plan_id"]

    repo.squash(7, head)
    applied = repo.job("arena-apply.yml", "push", {})
    assert applied.code == 0, applied.out
    (body,) = github_api.bodies(7)
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
    assert "~ deployment/word-problems: create is not what was approved" in comment
    assert approved in comment
    assert refused.outputs["plan_id"] in comment
    assert repo.job("arena-apply.yml", "push", {}).code == 4
    assert len(github_api.bodies(7)) == 2

    other = repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=approved)
    assert other.code == 4, other.out
    by_hand = repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=refused.outputs["plan_id"])
    assert by_hand.code == 0, by_hand.out


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
    assert "deployment/word-problems" in rest.out


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
    base = repo.commit("All of it")
    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    head = repo.commit("A stranger's change")
    event = repo.pull_event(11, source="stranger/infra", base=base)
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
    connected.edit("experiments/word-problems-grpo.yaml", "reward: word-problems", "reward: nothing")
    connected.commit("A mistake")
    broken = planned(connected, 7)
    assert broken.code == 65
    assert "::error file=experiments/word-problems-grpo.yaml" in broken.out
    (body,) = github_api.bodies(7)
    assert Marker.find(body).plan_id is None
    assert "No plan for" in body


def test_a_merge_queue_has_no_comment_and_says_it_on_its_page(connected, github_api):
    connected.commit("All of it")
    queued = connected.job("arena-plan.yml", "merge_group", {"merge_group": {}})
    assert queued.code == 0, queued.out
    assert "word-problems-grpo" in queued.summary
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
    assert "deployment/word-problems: not on the platform" in issue["body"]
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
    repo.cancel_at = "checking experiment/word-problems-grpo"
    cancelled = repo.job("arena-apply.yml", "push", {})
    assert cancelled.code == 143, cancelled.out
    assert time.monotonic() - repo.cancelled <= 5
    assert Marker.find(github_api.bodies(7)[0]).state == "open"

    repo.cancel_at = ""
    again = repo.job("arena-apply.yml", "push", {})
    assert again.code == 0, again.out
    assert Marker.find(github_api.bodies(7)[0]).state == "applied"
