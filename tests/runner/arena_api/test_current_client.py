"""The current published client: the tutorial in its own dialect, and everything that can go wrong for its user."""

from __future__ import annotations

import csv
import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MANIFEST = """
apiVersion: agilerl.com/v1
algorithm:
  name: GRPO
  batch_size: 6
  group_size: 8
  lr: 0.000005
  beta: 0.001
  temperature: 0.9
environment:
  env_type: rollout
  dataset: sums
  rubric_file_path: reward.py
  prompt_template:
    user_0: "{question}"
training:
  max_steps: 100000
  evo_steps: 5
  pop_size: 2
  evaluation_interval: 5
network:
  pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
  max_context_length: 256
"""


@pytest.fixture(scope="module")
def client(client_of, tutorial, question_rows):
    client = client_of("1.29.0")
    tutorial.write(client.folder)
    (client.folder / "grpo.yaml").write_text(MANIFEST)
    with (client.folder / "sums.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(question_rows)
    return client


@pytest.fixture(scope="module")
def prepared(client):
    """A dataset of a file, and a default project."""
    mapping = json.dumps({"question": "question", "answer": "answer"})
    client.arena(
        "datasets",
        "create",
        "sums",
        "--category",
        "reasoning",
        "--file",
        "sums.csv",
        "--column-mapping",
        mapping,
    )
    client.arena("projects", "create", "Sums", "--llm-based", "--description", "adds")
    client.arena("projects", "set-default", "Sums")
    return client


def submit(client, name, *more, expect=0, manifest="grpo.yaml", reward="reward.py"):
    files = [manifest, "--reward-file", reward, "--experiment-name", name]
    return client.arena("experiments", "submit", *files, *more, expect=expect)


@pytest.fixture(scope="module")
def completed(site, prepared):
    submit(prepared, "sums-v1")
    return site.wait("sums-v1", "completed", seconds=200)


@pytest.fixture(scope="module")
def served(site, client, completed):
    client.arena("agent", "deploy", "sums-v1")
    return site.until(
        lambda: site.get("/api/cli/v1/inference/deployments/one", name="sums-v1")["revision"], seconds=90
    )


def test_the_whole_flow_ends_in_a_completion(client, served):
    assert client.arena("agent", "generate", "sums-v1", "--prompt", "What is 2 + 3?").out.strip()
    assert "sums-v1" in client.arena("agent", "list").text


def test_a_conversation_is_kept_shown_and_deleted(client, served):
    client.arena("agent", "run", "sums-v1")
    client.arena("agent", "generate", "--prompt", "What is 4 + 4?", "--session-id", "talk")
    client.arena("agent", "generate", "--prompt", "And plus 1?", "--session-id", "talk")

    shown = client.arena("agent", "sessions", "get", "talk").text
    assert "What is 4 + 4?" in shown
    assert "And plus 1?" in shown
    client.arena("agent", "sessions", "delete", "talk", "--yes")
    assert "talk" not in client.arena("agent", "sessions", "list").text


def test_metrics_and_checkpoints_are_shown(client, completed):
    client.arena("experiments", "metrics", "sums-v1", "--metric", "reward/mean", "--output-file", "one.csv")

    header = (client.folder / "one.csv").read_text().splitlines()[0]
    assert header == "step,member,reward/mean"
    assert str(completed["step"]) in client.arena("experiments", "checkpoints", "sums-v1").text


def test_the_sdk_lists_metric_names(client, completed):
    script = """
from agilerl.arena import ArenaClient
with ArenaClient() as client:
    print(client.list_experiment_metric_names("sums-v1"))
"""
    assert "reward/mean" in client.sdk(script).out


def test_a_run_is_stopped_listed_and_resumed(site, prepared):
    submit(prepared, "sums-v2", manifest=_changed(prepared, "lr: 0.000005", "lr: 0.000006"))
    prepared.arena("experiments", "stop", "sums-v2")
    site.wait("sums-v2", "stopped")

    assert "stopped" in prepared.arena("experiments", "list").text
    prepared.arena("experiments", "resume", "sums-v2", "--max-steps", "200000")
    assert site.wait("sums-v2", "queued", "validating", "running", "completed")["max_steps"] == 200_000
    assert site.wait("sums-v2", "completed", seconds=200)["step"] >= 48


def test_lists_of_everything_are_shown(client, completed):
    shown = {
        "Sums": ("projects", "list"),
        "sums": ("datasets", "list"),
        "local": ("resources", "list"),
        "tiny-llama": ("models", "list"),
        "k_proj": ("models", "info", "Qwen/Qwen2.5-0.5B-Instruct"),
        "embedded": ("user", "profile"),
        "spent": ("user", "credits"),
    }
    for word, command in shown.items():
        assert word in client.arena(*command).text


def test_things_are_deleted(prepared):
    prepared.arena("projects", "create", "Short Lived")
    prepared.arena("projects", "delete", "Short Lived", "--yes")
    mapping = json.dumps({"question": "question", "answer": "answer"})
    options = ["--category", "reasoning", "--file", "sums.csv", "--column-mapping", mapping]
    prepared.arena("datasets", "create", "gone", *options)
    prepared.arena("datasets", "delete", "gone", "--yes")

    assert "Short Lived" not in prepared.arena("projects", "list").text
    assert "gone" not in prepared.arena("datasets", "list").text


def test_the_help_is_shown_although_there_are_no_capabilities(client):
    assert "Traceback" not in client.arena("--help").text


def test_a_bad_token_is_said(client):
    done = client.arena("projects", "list", expect=1, ARENA_API_KEY="arena_pat_wrong")

    assert "Traceback" not in done.text
    assert done.text.startswith("Error: Invalid API key")


def test_a_failing_reward_is_told_with_its_line_and_starts_nothing(site, prepared):
    text = "def reward(question, answer, completion):\n    return answer[999]\n"
    (prepared.folder / "bad.py").write_text(text)

    done = submit(prepared, "bad-reward", reward="bad.py", expect=1)

    assert "bad.py:2" in done.text
    assert "IndexError" in done.text
    assert "Traceback" not in done.text
    assert "bad-reward" not in {row["name"] for row in site.get("/api/cli/v1/experiments/list")}


def test_a_manifest_that_only_the_server_finds_wrong_is_told_by_its_path(prepared):
    manifest = _changed(prepared, "dataset: sums", "dataset: nowhere")

    done = submit(prepared, "bad-manifest", manifest=manifest, expect=1)

    assert "dataset 'nowhere' does not exist here" in done.text
    assert "there are:" in done.text


def test_an_unknown_experiment_is_one_line(prepared):
    done = prepared.arena("experiments", "stop", "nobody", expect=1)

    assert "experiment 'nobody' does not exist on this server" in done.text


def test_the_tutorials_own_manifest_is_refused_by_this_client_itself(prepared):
    done = submit(prepared, "old", manifest="gsm8k_grpo.yaml", expect=1)

    assert "use_vllm" in done.text


def _changed(client, old, new):
    """The name of a manifest that differs."""
    assert old in MANIFEST
    (client.folder / "changed.yaml").write_text(MANIFEST.replace(old, new))
    return "changed.yaml"
