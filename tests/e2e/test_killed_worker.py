"""`kill -9` in mid-training: the server notices, another segment goes on, the run completes and counts each step once."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(example):
    return example("infra-repo")


@pytest.fixture(scope="module")
def state(site, repository, until):
    """Kill the worker once it has saved a state, then wait for the end."""
    site.run(repository, "apply", "--target", "local", "--yes", "--wait", "none")

    def run() -> dict:
        return site.state(repository)["experiment/word-problems-grpo"]["run"]

    until(lambda: run()["step"] >= 64 and run()["state"] == "running")
    site.worker(run()["run_id"]).kill()
    until(lambda: run()["state"] in {"completed", "failed", "stopped"}, seconds=240)
    return site.state(repository)


def test_the_run_completes_in_two_segments(state):
    run = state["experiment/word-problems-grpo"]["run"]

    assert (run["state"], run["segments"], run["step"]) == ("completed", 2, 384)


def test_evolution_goes_on_where_it_was(state):
    generations = [r["generation"] for r in state["experiment/word-problems-grpo"]["run"]["lineage"]]

    assert generations == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_mlflow_has_each_step_once(state, mlflow, until):
    run = state["experiment/word-problems-grpo"]["run"]
    parent = run["mlflow_url"].rpartition("/")[2]
    until(lambda: mlflow.get_run(parent).info.status == "FINISHED")

    for child in mlflow.children(mlflow.get_run(parent)):
        steps = [m.step for m in mlflow.client.get_metric_history(child.info.run_id, "reward/mean")]
        assert steps == list(range(32, 385, 32))


def test_the_same_apply_again_trains_nothing(site, repository, state):
    done = site.run(repository, "plan", "--target", "local", "--detailed-exitcode", "--json")

    assert json.loads(done.stdout)["summary"]["create"] == 0
