"""The published tutorial, its eight commands as printed, by the client it was written for."""

from __future__ import annotations

import csv

import pytest
from tutorial import (
    CHECKPOINTS,
    COMMANDS,
    CREATE_DATASET,
    CREATE_PROJECT,
    DEPLOY,
    DEPLOY_STEP,
    GENERATE,
    METRICS,
    SUBMIT,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(client_of, tutorial):
    client = client_of("0.9.0")
    tutorial.write(client.folder)
    return client


@pytest.fixture(scope="module")
def submitted(client):
    client.sh(CREATE_DATASET)
    client.sh(CREATE_PROJECT)
    return client.sh(SUBMIT)


@pytest.fixture(scope="module")
def completed(site, submitted):
    return site.wait("gsm8k-grpo-v1", "completed", seconds=200)


@pytest.fixture(scope="module")
def deployed(site, client, completed):
    client.sh(DEPLOY)
    return site.until(
        lambda: (
            (d := site.get("/api/cli/v1/inference/deployments/one", name="gsm8k-grpo-v1"))["revision"] and d
        ),
        seconds=90,
    )


def test_the_submission_says_what_it_checked_and_the_runs_id(submitted, completed):
    assert f"Submitted gsm8k-grpo-v1 v1 as run {completed['run_id']}" in submitted.text
    assert "reward/reward probes" in submitted.text


def test_the_submission_says_what_this_server_does_otherwise(submitted):
    for wanted in ("arena-medium", "2 nodes", "after 48 of the 100000 steps", "tiny-llama in place of"):
        assert wanted in submitted.text


def test_the_run_ends_completed_at_the_servers_limit(completed):
    assert completed["message"] == "capped at 48 of 100000"
    assert completed["step"] >= 48


@pytest.mark.usefixtures("submitted")
def test_the_dataset_came_from_the_hub(site):
    assert site.get("/api/cli/v1/datasets", name="gsm8k")[0]["hf_dataset_id"] == "openai/gsm8k"


def test_metrics_arrive_as_a_csv_file(client, completed):
    client.sh(METRICS)

    rows = list(csv.DictReader((client.folder / "metrics.csv").open()))

    assert {row["member"] for row in rows} >= {"0", "1"}
    assert any(row["reward/mean"] for row in rows)


def test_checkpoints_are_listed_with_their_steps(site, client, completed):
    shown = client.sh(CHECKPOINTS)

    found = site.get("/api/cli/v1/experiments/jobs/checkpoints", experiment_name="gsm8k-grpo-v1")
    assert found[-1]["steps"] == completed["step"]
    assert str(found[-1]["steps"]) in shown.text


def test_the_best_checkpoint_is_deployed_and_answers(client, deployed):
    assert deployed["checkpoint"] == "best"
    assert client.sh(GENERATE).out.strip()


def test_a_checkpoint_is_deployed_by_its_step(site, client, deployed):
    client.sh(DEPLOY_STEP)

    now = site.get("/api/cli/v1/inference/deployments/one", name="gsm8k-grpo-v1")
    assert now["checkpoint"] == "step_500"


def test_the_python_client_generates_for_several_prompts_and_streams(client, deployed):
    script = """
from agilerl.arena import ArenaClient
with ArenaClient() as client, client.open_inference_agent("gsm8k-grpo-v1") as agent:
    result = agent.generate(["What is 1 + 1?", "What is 2 + 2?"])
    assert [r.prompt for r in result.results] == ["What is 1 + 1?", "What is 2 + 2?"], result
    print(len(result.results), len("".join(agent.generate_stream("What is 3 + 3?"))) > 0)
"""
    assert "2 True" in client.sdk(script).out


def test_what_commands_made_belongs_to_no_repository(site, completed):
    other = site.get("/api/v1/state", stack="some-team")

    assert other["resources"] == []
    assert "experiment/gsm8k-grpo-v1 imperative" in other["foreign"]


def test_files_and_commands_are_the_published_ones(published, tutorial):
    for text in (tutorial.manifest, tutorial.reward, *COMMANDS):
        assert text.strip() in published
