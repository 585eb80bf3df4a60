"""Submission: what is said, what is refused, which run it becomes."""

from __future__ import annotations

import json

import pytest
from arena_asks import MANIFEST, REWARD, P, make_dataset, submit

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, PutResource
from arena_runner.server.services import resources


def test_a_submission_ends_in_completed_with_the_runs_id(http, submitted):
    assert submitted["status"] == "completed"
    assert submitted["detail"]["id"] in submitted["message"]
    assert http.get(f"/api/v1/runs/{submitted['detail']['id']}").json()["state"] == "queued"


def test_a_submission_without_a_reward_file_is_json(http):
    make_dataset(http)
    body = {
        "manifest": MANIFEST,
        "resource_id": None,
        "num_nodes": None,
        "project": None,
        "experiment_name": None,
    }

    lines = http.post(f"{P}/experiments/jobs/submit", json=body).text.splitlines()

    assert json.loads(lines[-1])["status"] == "failed"
    assert "GRPO needs a reward" in json.loads(lines[-1])["message"]


@pytest.mark.parametrize(
    ("changes", "reward", "wanted"),
    [
        ({"algorithm": {"name": "GRPO", "batch_sise": 2}}, REWARD, "did you mean 'batch_size'"),
        ({"algorithm": {"name": "DQN"}}, REWARD, "DQN"),
        ({"environment": {"name": "other"}}, REWARD, "there are: sums"),
        ({}, b"def reward(question, answer, completion)\n    return 1.0\n", "reward.py:1"),
        ({}, b"def score(question, answer, completion):\n    return 1.0\n", "it has: score"),
        ({}, b"def reward(question, answer, completion):\n    return answer[999]\n", "reward.py:2"),
        ({}, b"import nowhere\n" + REWARD, "nowhere"),
    ],
)
def test_a_wrong_submission_ends_in_failed_and_starts_nothing(http, changes, reward, wanted):
    make_dataset(http)

    last = submit(http, {**MANIFEST, **changes}, reward)[-1]

    assert last["status"] == "failed"
    assert wanted in last["message"]
    assert not {"[", "]"} & set(last["message"])
    assert http.get(f"{P}/experiments/list").json() == []


@pytest.mark.parametrize(
    ("asked", "source", "function"),
    [
        ({}, REWARD, "reward"),
        ({"rubric_name": "reward_fn"}, REWARD, "reward"),
        ({"rubric_name": "mine"}, REWARD + REWARD.replace(b"reward", b"mine"), "mine"),
    ],
)
def test_the_rewards_name_is_the_manifests_if_the_file_has_it_else_reward(http, asked, source, function):
    make_dataset(http)
    environment = {"env_type": "rollout", "dataset": "sums", "rubric_file_path": "x/reward.py", **asked}

    assert submit(http, {**MANIFEST, "environment": environment}, source)[-1]["status"] == "completed"

    state = http.get("/api/v1/state?stack=imperative").json()
    found = next(r for r in state["resources"] if r["kind"] == "experiment")
    assert found["spec"]["inputs"]["reward"]["function"] == function


def test_a_sample_completion_is_scored_once(http):
    make_dataset(http)

    messages = [line["message"] for line in submit(http, completion="it is 42")]

    assert "the sample completion scores 1" in messages


def test_warnings_say_what_this_server_does_otherwise(http):
    make_dataset(http)

    lines = submit(http, resource_id="arena-medium", num_nodes="2")

    warnings = " ".join(line["message"] for line in lines if line["kind"] == "warning")
    assert "arena-medium" in warnings
    assert "after 64 of the 100000 steps" in warnings


def test_a_default_of_the_client_that_this_server_does_not_do_is_a_warning(http):
    make_dataset(http)
    algorithm = {**MANIFEST["algorithm"], "top_k": 50, "use_liger_loss": True}

    lines = submit(http, {**MANIFEST, "algorithm": algorithm})

    warned = [line["message"] for line in lines if line["kind"] == "warning"]
    assert "algorithm.top_k: 50 is the client's default and not acted on" in warned
    assert any("algorithm.use_liger_loss" in line["message"] for line in lines)
    assert lines[-1]["status"] == "completed"


def test_another_value_of_it_is_refused(http):
    make_dataset(http)

    last = submit(http, {**MANIFEST, "algorithm": {**MANIFEST["algorithm"], "top_k": 7}})[-1]

    assert (last["status"], last["detail"]["error_code"]) == ("failed", "no-room")


def test_an_unknown_project_is_said_before_anything_is_checked(http):
    make_dataset(http)

    lines = submit(http, project="Nowhere")

    assert [line["status"] for line in lines] == ["failed"]


def test_submitting_the_same_again_is_the_same_run(http, submitted):
    assert submit(http)[-1]["detail"]["id"] == submitted["detail"]["id"]


def test_submitting_again_after_a_stop_is_another_try(http, submitted):
    http.post(f"{P}/experiments/jobs/stop", json={"experiment_name": "exp"})

    again = submit(http)[-1]["detail"]

    assert (again["version"], again["status"]) == (2, "queued")
    assert again["id"] != submitted["detail"]["id"]


def test_other_content_under_a_name_is_its_next_version(http, submitted):
    faster = {**MANIFEST, "algorithm": {**MANIFEST["algorithm"], "lr": 1e-4}}

    assert submit(http, faster)[-1]["detail"]["version"] == 2


def test_the_same_work_declared_in_a_repository_is_the_same_run(world, http, submitted):
    state = http.get("/api/v1/state?stack=imperative").json()
    mine = next(r for r in state["resources"] if r["kind"] == "experiment")
    body = PutResource(owner=Owner(stack="team"), spec=mine["spec"], fingerprint=mine["fingerprint"])

    theirs = resources.put(world, resources.Put(Address("experiment", "theirs"), body, None))

    assert theirs.run.run_id == submitted["detail"]["id"]
