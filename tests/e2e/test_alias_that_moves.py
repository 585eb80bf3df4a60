"""A person moves an alias between the plan that was approved and its apply: exit 4, and a comment with the difference.

The registry is a real MLflow behind a real server; only the training is a script.
"""

from __future__ import annotations

import json
import time

import httpx
import pytest
from ci_job import planned, repo, tracked
from github_api import github_api

from arena_gitops.platforms.http import HttpPlatform
from arena_gitops.report.marker import Marker
from arena_gitops.spec.lease import LeaseRequest
from arena_gitops.spec.wire import Owner

__all__ = ["github_api", "repo", "tracked"]

pytestmark = pytest.mark.slow


@pytest.fixture
def models(tracked):
    """The registry of the server's own MLflow, as a person reaches it."""
    headers = {"Authorization": f"Bearer {tracked.token}"}
    address = f"{tracked.url}/mlflow/api/2.0/mlflow/"
    with httpx.Client(base_url=address, headers=headers, timeout=30) as client:
        yield client


@pytest.fixture
def approved(repo, tracked, models, github_api):
    """A merged pull request whose plan promotes version 1; and how a person points the alias elsewhere."""
    repo.connect(tracked.url, tracked.token)
    repo.edit("manifests/word_problems_grpo.yaml", r"max_steps: \d+", "max_steps: 16")
    repo.edit("deployments/word-problems.yaml", "checkpoint: best\ngate: .*", 'checkpoint: "@champion"')
    head = repo.commit("All of it")
    planned(repo, 7)
    repo.squash(7, head)
    assert repo.job("arena-apply.yml", "push", {}).code == 0
    model = f"{repo.name}-grpo"

    def choose(version):
        chosen = {"name": model, "alias": "champion", "version": version}
        assert models.post("registered-models/alias", json=chosen).status_code == 200

    until(lambda: known_versions(models, model) >= 2)
    choose("1")
    head = repo.commit("The first is the champion")
    shown = planned(repo, 8)
    assert "1 to promote" in shown.out
    assert "champion is version 1" in github_api.bodies(8)[0]
    repo.squash(8, head)
    return shown, choose


def test_an_alias_moved_between_merge_and_apply_is_not_what_was_approved(repo, approved, github_api):
    shown, choose = approved
    choose("2")
    refused = repo.job("arena-apply.yml", "push", {})
    assert refused.code == 4, refused.out
    body, comment = github_api.bodies(8)
    assert Marker.find(body).state == "open"
    assert f"~ deployment/{repo.name}: promote is not what was approved" in comment
    assert "champion is version 2" in comment
    assert shown.outputs["plan_id"] in comment
    assert refused.outputs["plan_id"] in comment
    assert not choice(repo)["applied"]

    again = repo.job("arena-apply.yml", "workflow_dispatch", {}, plan_id=refused.outputs["plan_id"])
    assert again.code == 0, again.out
    assert (choice(repo)["version"], choice(repo)["applied"]) == ("2", True)
    is_told_what_has_come_of_its_runs(repo, github_api)


def is_told_what_has_come_of_its_runs(repo, github_api):
    """The run of number 7 has ended; number 8 began none."""
    before = github_api.bodies(8)
    for _ in range(2):
        told = repo.job("arena-report.yml", "schedule", {})
        assert told.code == 0, told.out
        assert told.outputs == {"ended": "1"}
    _, comment = github_api.bodies(7)
    assert "### 🏁 Results on prod" in comment
    assert "**1 of 1 run ended.**" in comment
    assert f"experiment/{repo.name}-grpo v1" in comment
    assert "| completed | 16 of 16 | step_16/m" in comment
    assert f"- deployment/{repo.name} " in comment
    assert github_api.bodies(8) == before


def test_an_alias_moved_while_the_apply_is_under_way_is_not_what_was_approved(
    repo, approved, tracked, github_api
):
    """The apply has compared its plan already and waits for its turn; the alias moves just then."""
    shown, choose = approved
    platform = HttpPlatform(tracked.url, tracked.token)
    owner = Owner(stack=repo.name)
    lease = platform.take_lease(
        LeaseRequest(owner=owner, holder="another apply", operation="apply", ttl_s=200)
    )

    def moves():
        choose("2")
        platform.release_lease(lease.id)

    repo.meanwhile = ("waiting up to", moves)
    refused = repo.job("arena-apply.yml", "push", {})
    platform.close()
    assert repo.meanwhile is None, refused.out
    assert refused.code == 4, refused.out
    assert "points elsewhere by now" in refused.out
    body, comment = github_api.bodies(8)
    assert Marker.find(body).state == "open"
    assert "champion is version 2" in comment
    assert shown.outputs["plan_id"] in comment
    assert refused.outputs["plan_id"] in comment
    assert refused.outputs["plan_id"] != shown.outputs["plan_id"]
    assert not choice(repo)["applied"]


def choice(repo):
    """What the server knows of the person's choice."""
    found = json.loads(repo.arena("status", "--target", "prod", "--json"))["resources"]
    (status,) = (r["deployment"] for r in found if r["kind"] == "deployment")
    return status["choice"]


def known_versions(models, model):
    found = models.get("model-versions/search", params={"filter": f"name='{model}'"})
    return len(found.json().get("model_versions", ())) if found.status_code == 200 else 0


def until(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
