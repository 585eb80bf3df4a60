"""The current published client: the tutorial in its own dialect, trained and served, by commands and by its SDK."""

from __future__ import annotations

import csv
import json

import pytest

pytestmark = pytest.mark.slow

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
    client.arena("agent", "deploy", "sums-v1", "--memory-scope", "user")
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


def test_the_sdk_answers_a_batch_streams_and_keeps_a_session(client, served):
    script = """
from agilerl.arena import ArenaClient
from agilerl.arena.exceptions import ArenaInferenceError
from agilerl.arena.inference.agent import LLMParams
import numpy as np
with ArenaClient() as client, client.open_inference_agent("sums-v1") as agent:
    assert (agent.metadata.agent.algo, agent.metadata.agent.llm) == ("GRPO", True)
    prompts = ["What is 1 + 1?", "What is 2 + 2?", "What is 3 + 3?"]
    greedy = LLMParams(temperature=0.0, do_sample=False, max_new_tokens=8)
    batch = agent.generate(prompts, params=greedy)
    assert [r.prompt for r in batch.results] == prompts
    assert (batch.batch_size, batch.success) == (3, True)
    alone = agent.generate(prompts[1], params=greedy)
    assert alone.results[0].completion == batch.results[1].completion
    assert "".join(agent.generate_stream(prompts[1], params=greedy)) == alone.results[0].completion
    agent.generate(prompts[0], params=greedy, session_id="sdk")
    list(agent.generate_stream(prompts[1], params=greedy, session_id="sdk"))
    assert "sdk" in [s.session_id for s in agent.list_sessions()]
    assert [m.role for m in agent.get_session("sdk").messages] == ["user", "assistant"] * 2
    assert (agent.delete_session("sdk"), agent.delete_session("sdk")) == (True, False)
    try:
        agent.get_action(np.zeros(3, np.float32))
    except ArenaInferenceError as refused:
        print("refused:", refused)
    agent.metadata = agent.metadata.model_copy(update={"agent": None})
    try:
        agent.predict(np.zeros(3, np.float32))
    except ArenaInferenceError as refused:
        print("refused:", refused)
"""
    out = client.sdk(script).out

    assert "Deployment is not RL" in out
    assert "is a language model: use generate or generate_stream" in out


def test_the_memory_scope_of_a_deployment_is_not_changed(client, served):
    done = client.arena("agent", "deploy", "sums-v1", "--memory-scope", "organization", expect=1)

    assert "that cannot be changed afterwards" in done.text


def test_the_unmodified_openai_package_talks_to_the_same_deployment(site, served):
    openai = pytest.importorskip("openai")
    asked = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "max_tokens": 8, "temperature": 0}
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key=site.token, max_retries=0) as user:
        whole = user.chat.completions.create(model="sums-v1", **asked)
        chunks = list(user.chat.completions.create(model="sums-v1", stream=True, **asked))

        assert "sums-v1" in [model.id for model in user.models.list()]
        with pytest.raises(openai.NotFoundError, match="sums-v9"):
            user.chat.completions.create(model="sums-v9", **asked)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    stranger = openai.OpenAI(base_url=f"{site.url}/v1", api_key="sk-wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_an_unknown_experiment_is_one_line(prepared):
    done = prepared.arena("experiments", "stop", "nobody", expect=1)

    assert "experiment 'nobody' does not exist on this server" in done.text


def test_the_tutorials_own_manifest_is_refused_by_this_client_itself(prepared):
    done = submit(prepared, "old", manifest="gsm8k_grpo.yaml", expect=1)

    assert "use_vllm" in done.text
