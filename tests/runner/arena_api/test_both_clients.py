"""Both published clients at one server: environments, lists and deletions, and everything that can go wrong.

Nothing here waits for a run to end; what is trained and served is in the modules of each client.
"""

from __future__ import annotations

import json

import pytest
from archives import MERGE

pytestmark = pytest.mark.slow

VERSIONS = ["0.9.0", "1.29.0"]
CURRENT = """
algorithm: {name: GRPO, batch_size: 6, group_size: 8, lr: 0.000005}
environment:
  env_type: rollout
  dataset: gsm8k
  rubric_file_path: reward.py
  prompt_template: {user_0: "{question}"}
training: {max_steps: 100000, evo_steps: 5, pop_size: 2, evaluation_interval: 5}
network: {pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct, max_context_length: 256}
"""
CQN = """
algorithm: {name: CQN}
environment: {name: LunarLander-v3, num_envs: 16}
training: {max_steps: 1000000, target_score: 200.0, pop_size: 4, evo_steps: 10000}
network:
  latent_dim: 128
  encoder_config: {hidden_size: [128], activation: ReLU}
  head_config: {hidden_size: [128], activation: ReLU}
replay_buffer: {max_size: 100000}
"""
MAPPING = json.dumps({"question": "question", "answer": "answer"})


@pytest.fixture(scope="module")
def clients(client_of, tutorial):
    """Both clients, logged in at one server on which the dataset is."""
    made = {version: client_of(version) for version in VERSIONS}
    for client in made.values():
        tutorial.write(client.folder)
        (client.folder / "current.yaml").write_text(CURRENT)
        (client.folder / "cqn.yaml").write_text(CQN)
    options = ["--category", "reasoning", "--column-mapping", MAPPING]
    hub = ["--hf-dataset", "openai/gsm8k", "--hf-config", "main", "--hf-split", "train"]
    made["0.9.0"].arena("datasets", "create", "gsm8k", *options, *hub)
    made["1.29.0"].arena("projects", "create", "Both", "--llm-based")
    return made


@pytest.fixture(params=VERSIONS)
def client(clients, request):
    return clients[request.param]


def mine(client, name):
    """A name of this client's own."""
    return f"{name}-{client.version.replace('.', '-')}"


def submit(client, name, *, reward="reward.py", manifest=None, expect=0):
    manifest = manifest or ("gsm8k_grpo.yaml" if client.version == "0.9.0" else "current.yaml")
    options = ["--reward-file", reward] if reward else []
    return client.arena(
        "experiments",
        "submit",
        manifest,
        *options,
        "--project",
        "Both",
        "--experiment-name",
        name,
        expect=expect,
    )


def source(client, text, name="merge-env"):
    """A folder with an environment, and what does not belong to it."""
    folder = client.folder / name
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "config").write_text("secret")
    (folder / "merge.py").write_text(text)
    (folder / "env_config.yaml").write_text("size: 3\n")
    return f"{name}/"


def test_an_environment_from_validation_to_deletion(client):
    name = mine(client, "merge")
    folder = source(client, MERGE)
    checked, again, profiled, _, listed, exists, entrypoints, _, gone, _, after = client.several(
        ("env", "validate", name, "--source", folder, "--do-rollouts"),
        ("env", "validate", name, "--version", "v1"),
        ("env", "profile", name),
        ("env", "duplicate", name, "v2"),
        ("env", "list", "--name", name),
        ("env", "exists", name, "--version", "v2"),
        ("env", "entrypoints", name),
        ("env", "delete", name, "--version", "v1", "--yes"),
        ("env", "exists", name, "--version", "v1"),
        ("env", "delete", name, "--yes"),
        ("env", "list"),
    )

    assert "random episodes" in checked.text
    assert ".git/config" in checked.text
    assert "FAIL" not in checked.text + again.text
    assert "Steps per Second" in profiled.text
    assert "v2" in listed.text
    assert ("True" in exists.text, "False" in gone.text) == (True, True)
    assert "merge:MergeEnv" in entrypoints.text
    assert name not in after.text


def test_a_broken_environment_is_told_with_its_line(client):
    folder = source(client, MERGE.replace("self.left = 10", "self.left = 1 / 0"), "broken-env")

    done = client.arena("env", "validate", mine(client, "broken"), "--source", folder, expect=1)

    assert "merge.py:13: ZeroDivisionError" in done.text
    assert "Traceback" not in done.text


def test_several_entry_points_are_listed_with_what_to_add(client):
    two = MERGE + "\n\nclass Other(MergeEnv):\n    pass\n\n\nclass Third(MergeEnv):\n    pass\n"

    done = client.arena(
        "env", "validate", mine(client, "two"), "--source", source(client, two, "two-env"), expect=1
    )

    assert "merge:Other, merge:Third" in done.text
    assert "--entrypoint merge:Other" in done.text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def reward(question, answer, completion):\n    return answer[999]\n", "bad.py:2"),
        ("def reward(question):\n    return 1.0\n", "called as reward(question, answer, completion)"),
        ("def reward(question, answer, completion):\n    return float('nan')\n", "returned nan"),
    ],
)
def test_a_failing_reward_is_one_message_and_starts_nothing(site, client, code, said):
    (client.folder / "bad.py").write_text(code)
    name = mine(client, "bad")

    done = submit(client, name, reward="bad.py", expect=1)

    assert said in done.text
    assert [line for line in done.err.splitlines() if line.startswith("Error: ")] == done.err.splitlines()[:1]
    assert "Traceback" not in done.text
    assert name not in {row["name"] for row in site.get("/api/cli/v1/experiments/list")}


def test_what_this_server_cannot_train_yet_is_one_message(client):
    done = submit(client, mine(client, "cqn"), manifest="cqn.yaml", reward=None, expect=1)

    assert "this server cannot train that yet" in done.text
    assert "Traceback" not in done.text


def test_a_manifest_about_a_dataset_that_is_not_there(client):
    text = (client.folder / "current.yaml").read_text().replace("dataset: gsm8k", "dataset: nowhere")
    if client.version == "0.9.0":
        text = (client.folder / "gsm8k_grpo.yaml").read_text().replace("name: gsm8k", "name: nowhere")
    (client.folder / "nowhere.yaml").write_text(text)

    done = submit(client, mine(client, "nowhere"), manifest="nowhere.yaml", expect=1)

    assert "dataset 'nowhere' does not exist here" in done.text
    assert "Traceback" not in done.text


def test_a_wrong_token_is_said(client):
    done = client.arena("projects", "list", expect=1, ARENA_API_KEY="arena_pat_wrong")

    assert done.text.startswith("Error: Invalid API key")


def test_a_partners_user_is_told_apart_by_the_id_the_client_sends(site, client):
    partner = {"ARENA_ORG_KEY": site.token, "ARENA_EXTERNAL_USER_ID": "u-17"}

    assert "/u-17" in client.arena("user", "profile", **partner).text


def test_a_run_is_stopped_listed_resumed_and_measured(site, client):
    name = mine(client, "stopped")
    submit(client, name)
    client.arena("experiments", "stop", name)
    site.wait(name, "stopped")

    listed, _, _, _, _ = client.several(
        ("experiments", "list", "--project", "Both"),
        ("experiments", "resume", name, "--max-steps", "200000"),
        ("experiments", "checkpoints", name),
        ("experiments", "metrics", name, "--output-file", "some.csv"),
        ("experiments", "stop", name),
    )

    assert "stopped" in listed.text
    assert site.experiment(name)["max_steps"] == 200_000
    assert (client.folder / "some.csv").read_text().startswith("step,member")


def test_projects_and_datasets_come_and_go(client):
    project, dataset = mine(client, "short"), mine(client, "rows")
    (client.folder / "rows.csv").write_text("question,answer\n1 + 1?,2\n")
    options = ("--category", "reasoning", "--column-mapping", MAPPING)
    _, _, _, exists, _, projects, datasets = client.several(
        ("projects", "create", project, "--description", "soon gone"),
        ("projects", "delete", project, "--yes"),
        ("datasets", "create", dataset, *options, "--file", "rows.csv"),
        ("datasets", "exists", dataset),
        ("datasets", "delete", dataset, "--yes"),
        ("projects", "list"),
        ("datasets", "list"),
    )

    assert "True" in exists.text
    assert project not in projects.text
    assert dataset not in datasets.text


def test_lists_of_everything_are_shown(client):
    wanted = {
        "Both": ("projects", "list"),
        "gsm8k": ("datasets", "list"),
        "openai/gsm8k": ("datasets", "list", "--search", "gsm8k"),
        "local": ("resources", "list"),
        "tiny-llama": ("models", "list"),
        "k_proj": ("models", "info", "Qwen/Qwen2.5-0.5B-Instruct"),
        "CartPole-v1": ("env", "list", "--include-arena"),
        "embedded": ("user", "profile"),
        "spent": ("user", "credits"),
        "--help": ("--help",),
    }

    for word, shown in zip(wanted, client.several(*wanted.values()), strict=True):
        assert word in shown.text
        assert "Traceback" not in shown.text


def test_the_sdk_asks_for_what_has_no_command(client):
    script = """
from agilerl.arena import ArenaClient
from agilerl.arena.models import TrainingManifest
with ArenaClient() as client:
    spec = client.get_default_run_spec("GRPO", dataset_name="gsm8k")
    TrainingManifest.get_validated(spec, mode="python")
    section = client.get_default_run_spec("DQN", gym_env="LunarLander-v3", field="environment")
    rows = client.list_datasets(name="gsm8k")
    print(spec["environment"]["dataset"], section["name"], rows[0]["hf_dataset_id"], rows[0]["is_ready"])
"""
    assert "gsm8k LunarLander-v3 openai/gsm8k True" in client.sdk(script).out


def test_every_algorithm_a_client_knows_has_defaults_that_it_takes_itself(client):
    script = """
import re
from agilerl.arena import ArenaClient
from agilerl.arena.models import TrainingManifest
try:
    TrainingManifest.model_validate({"algorithm": {"name": "none"}})
except Exception as error:
    names = re.search(r"Registered: ([\\w ,]+)", str(error))[1].split(", ")
with ArenaClient() as client:
    for name in names:
        spec = client.get_default_run_spec(name, gym_env="LunarLander-v3", dataset_name="gsm8k")
        assert spec["algorithm"]["name"] == name
        TrainingManifest.model_validate(spec)
print(len(names))
"""
    assert int(client.sdk(script).out) >= 18
