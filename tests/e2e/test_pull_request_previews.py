"""Previews of pull requests: a namespace while the label is on, cut short, answering by its own name, collected whole."""

from __future__ import annotations

import json

import pytest
from ci_job import connected, repo, served
from github_api import github_api

__all__ = ["connected", "github_api", "repo", "served"]

pytestmark = pytest.mark.slow

LABEL = [{"name": "arena-preview"}]


def preview(repo, number, action, labels=LABEL, **more):
    event = {**repo.pull_event(number, labels=labels, **more), "action": action}
    return repo.job("arena-preview.yml", "pull_request", event)


def state(repo, namespace):
    found = json.loads(repo.arena("status", "--target", "prod", "--namespace", namespace, "--json"))
    return {f"{r['kind']}/{r['name']}": r for r in found["resources"]}


def test_a_labelled_pull_request_has_a_namespace_until_it_is_closed(connected, github_api):
    repo = connected
    repo.edit("deployments/word-problems.yaml", "^", "lifecycle: {protect: true}\n")
    repo.edit("manifests/word_problems_grpo.yaml", r"max_steps: \d+", "max_steps: 100_000")
    repo.commit("All of it")
    begun = preview(repo, 7, "labeled")
    assert begun.code == 0, begun.out
    assert begun.outputs["namespace"] == "pr-7"
    (body,) = github_api.bodies(7)
    assert "Preview of prod in namespace `pr-7`" in body
    assert f"answers as `pr-7--{repo.name}`" in body
    assert "a preview trains 200 steps at most, not 100,000" in begun.summary
    there = state(repo, "pr-7")
    run = there[f"experiment/{repo.name}-grpo"]["run"]
    assert (run["state"], run["max_steps"]) == ("queued", 200)
    assert state(repo, "main") == {}

    repo.edit("manifests/word_problems_grpo.yaml", r"\blr: \S+", "lr: 1.7e-4")
    repo.commit("Another learning rate")
    again = preview(repo, 7, "synchronize")
    assert again.code == 0, again.out
    assert state(repo, "pr-7")[f"experiment/{repo.name}-grpo"]["version"] == 2
    assert len(github_api.bodies(7)) == 1

    repo.edit("experiments/project.yaml", "kind: Project", "kind: Projct")
    repo.commit("Nobody can read this; the preview goes all the same")
    over = preview(repo, 7, "closed")
    assert over.code == 0, over.out
    assert state(repo, "pr-7") == {}
    (body,) = github_api.bodies(7)
    assert "5 resources of namespace `pr-7` removed" in body
    assert "There is nothing in namespace pr-7." in preview(repo, 7, "unlabeled", labels=[]).out


def test_a_pull_request_does_not_set_its_own_limits(connected, github_api):
    """Neither how long its preview trains nor what it may cost: `arena.yaml` of the base decides."""
    repo = connected
    repo.edit("arena.yaml", "require_owner: true", "require_owner: true\npreview: {max_steps: 100}")
    repo.base = repo.commit("The limits of the team")
    repo.edit("arena.yaml", "max_steps: 100", "max_steps: 100_000")
    repo.edit("arena.yaml", "require_owner: true", "require_owner: false")
    repo.edit("manifests/word_problems_grpo.yaml", r"max_steps: \d+", "max_steps: 100_000")
    repo.commit("More for me")
    begun = preview(repo, 9, "labeled")
    assert begun.code == 0, begun.out
    assert state(repo, "pr-9")[f"experiment/{repo.name}-grpo"]["run"]["max_steps"] == 100

    repo.edit("experiments/word-problems-grpo.yaml", "owner: .*\n", "")
    repo.commit("Nobody's")
    assert preview(repo, 9, "synchronize").code == 3


def test_a_fork_and_a_pull_request_without_the_label_get_no_preview(connected, github_api):
    repo = connected
    repo.commit("All of it")
    assert preview(repo, 11, "labeled", source="stranger/infra").code == 3
    assert preview(repo, 12, "labeled", labels=[{"name": "other"}]).code == 0
    assert state(repo, "pr-12") == {}
    assert github_api.bodies(11) == github_api.bodies(12) == []
