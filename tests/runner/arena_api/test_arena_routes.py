"""The routes of the published client one by one, on a world without processes."""

from __future__ import annotations

import json

import pytest
from hub import parquet
from starlette.testclient import TestClient

from arena_gitops.spec.digest import fingerprint
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, PutResource, Tier
from arena_runner.server.app import create_app
from arena_runner.server.artifacts import BlobStore
from arena_runner.server.auth import Role, issue
from arena_runner.server.home import Home
from arena_runner.server.services import resources
from arena_runner.server.settings import Limits, Settings, TierFile
from arena_runner.server.store.database import Store
from arena_runner.server.world import World

P = "/api/cli/v1"
CSV = b"question,answer\nWhat is 1 + 1?,1 + 1 = 2 #### 2\nWhat is 2 + 2?,#### 4\n"
MAPPING = {"question": "question", "answer": "answer"}
REWARD = b"def reward(question, answer, completion):\n    return float(answer[-1] in completion)\n"
MANIFEST = {
    "algorithm": {"name": "GRPO", "batch_size": 2, "group_size": 4},
    "environment": {"name": "sums"},
    "training": {"max_steps": 100_000, "pop_size": 1},
    "network": {"pretrained_model_name_or_path": "tiny", "max_context_length": 128},
}


@pytest.fixture
def world(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    tier = Tier(id="local", num_cpus=2, ram_gb=4.0, credits_per_node_hour=1.0, slots=0)
    settings = Settings(limits=Limits(max_steps=64))
    store = Store.open(f"sqlite:///{home.database}")
    yield World(home, store, BlobStore(home.blobs), settings, TierFile(tiers=(tier,)))
    store.close()


@pytest.fixture
def http(world):
    headers = {"Authorization": f"Bearer {issue(world, Role.EDITOR, 'ada')}"}
    with TestClient(create_app(world), headers=headers) as client:
        yield client


def make_dataset(http, name="sums", files=None, **fields):
    sent = {"name": name, "category": "reasoning", "column_mapping": json.dumps(MAPPING), **fields}
    files = [("file", ("sums.csv", CSV, "text/csv"))] if files is None else files
    return http.post(f"{P}/datasets/create", data=sent, files=files or {"x": (None, "")})


def submit(http, manifest=MANIFEST, reward=REWARD, **fields):
    """The stream's lines."""
    data = {"manifest": json.dumps(manifest), "experiment_name": "exp", **fields}
    answer = http.post(
        f"{P}/experiments/jobs/submit",
        data=data,
        files={"reward_file": ("reward.py", reward, "text/x-python")},
    )
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def submitted(http):
    make_dataset(http)
    return submit(http)[-1]


def test_a_project_keeps_the_name_people_gave_it(http):
    http.post(f"{P}/projects/create", json={"name": "GSM8K Tutorial", "description": None, "llm_based": True})

    rows = http.get(f"{P}/projects").json()

    assert rows == [{"name": "GSM8K Tutorial", "type": "llm", "description": "", "id": "gsm8k-tutorial"}]


def test_creating_a_project_again_changes_nothing(http):
    body = {"name": "P", "description": None, "llm_based": True}

    assert (
        http.post(f"{P}/projects/create", json=body).json()
        == http.post(f"{P}/projects/create", json=body).json()
    )


def test_two_names_of_one_address_are_refused(http):
    http.post(f"{P}/projects/create", json={"name": "My Project"})

    answer = http.post(f"{P}/projects/create", json={"name": "my-project"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "name-taken")


def test_a_project_is_deleted_by_a_body_on_delete(http):
    http.post(f"{P}/projects/create", json={"name": "P"})

    assert http.request("DELETE", f"{P}/projects/delete", json={"name": "P"}).status_code == 200
    assert http.get(f"{P}/projects").json() == []


def test_a_project_with_a_run_at_work_is_not_deleted(http):
    http.post(f"{P}/projects/create", json={"name": "P"})
    make_dataset(http)
    submit(http, project="P")

    answer = http.request("DELETE", f"{P}/projects/delete", json={"name": "P"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "busy")


def test_a_csv_becomes_a_dataset(http):
    made = make_dataset(http).json()

    assert (made["is_ready"], made["uploaded"]) == (True, True)
    assert "2 rows" in made["message"]
    assert http.get(f"{P}/datasets/exists", params={"name": "sums"}).json()["datasetType"] == "reasoning"


def test_an_empty_query_value_is_no_filter(http):
    make_dataset(http)

    assert [row["name"] for row in http.get(f"{P}/datasets?name=&search=").json()] == ["sums"]


def test_parquet_files_of_a_folder_become_one_dataset_of_their_train_split(world, http):
    rows = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(6)]
    names = {
        "main/train-0.parquet": rows[:2],
        "main/train-1.parquet": rows[2:4],
        "main/test-0.parquet": rows[4:],
    }
    files = [
        ("file", (name, parquet(part), "application/vnd.apache.parquet")) for name, part in names.items()
    ]

    made = make_dataset(http, files=files, config="main").json()

    assert "4 rows, 4 different" in made["message"]


def test_a_hub_dataset_is_kept_by_its_id(http):
    made = make_dataset(http, files=(), hf_dataset_name="openai/gsm8k", hf_config="main", hf_split="train")

    assert made.status_code == 200, made.text
    assert http.get(f"{P}/datasets").json()[0]["hf_dataset_id"] == "openai/gsm8k"


@pytest.mark.parametrize(
    ("fields", "files", "wanted"),
    [
        ({"column_mapping": "{"}, None, "not JSON"),
        ({"column_mapping": '{"question": "question"}'}, None, "maps question, answer"),
        ({"column_mapping": '{"question": "questoin", "answer": "answer"}'}, None, "no column 'questoin'"),
        ({"category": "chess"}, None, "one of reasoning, preference, sft"),
        ({}, (), "either files"),
        ({}, [("file", ("a.parquet", b"PAR1 no", "x"))], "not a parquet file"),
        ({}, [("file", ("a.parquet", b"x", "x")), ("file", ("b.csv", b"x", "x"))], "must all be parquet"),
        ({"name": "!!!"}, None, "is no name"),
    ],
)
def test_a_wrong_dataset_is_refused_in_one_sentence_and_not_kept(http, fields, files, wanted):
    answer = make_dataset(http, files=files, **fields)

    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    assert wanted in answer.json()["detail"]
    assert http.get(f"{P}/datasets").json() == []


def test_a_dataset_of_other_content_does_not_replace_one(http):
    make_dataset(http)

    again = make_dataset(http)
    other = make_dataset(http, files=[("file", ("s.csv", CSV + b"What is 3?,3\n", "text/csv"))])

    assert (again.status_code, other.status_code) == (200, 409)


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


def test_a_stopped_run_is_listed_and_resumes(http, submitted):
    http.post(f"{P}/experiments/jobs/stop", json={"experiment_name": "exp"})
    stopped = http.get(f"{P}/experiments/list").json()[0]
    resumed = http.post(
        f"{P}/experiments/jobs/resume", json={"experiment_name": "exp", "max_steps": 200_000}
    ).json()

    assert stopped["status"] == "stopped"
    assert (resumed["status"], resumed["max_steps"]) == ("queued", 200_000)
    assert resumed["run_id"] == submitted["detail"]["id"]


def test_a_run_at_work_is_not_resumed_to_what_it_does_anyway(http, submitted):
    answer = http.post(f"{P}/experiments/jobs/resume", json={"experiment_name": "exp", "max_steps": 10})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "nothing-to-do")


def test_metrics_are_csv_with_a_preview_and_names_without(http, submitted):
    preview = http.get(f"{P}/experiments/metrics?experiment_name=exp&preview_rows=5&project=")
    names = http.get(f"{P}/experiments/metrics?experiment_name=exp")

    assert preview.headers["content-type"].startswith("text/csv")
    assert preview.text == "step,member\n"
    assert names.json() == []


def test_a_metric_that_is_not_there_is_said(http, submitted):
    answer = http.get(f"{P}/experiments/metrics?experiment_name=exp&preview_rows=5&metric=loss")

    assert (answer.status_code, answer.json()["error_code"]) == (422, "unknown-metric")


def test_a_deployment_has_no_address_before_it_serves(http, submitted):
    http.post(
        f"{P}/inference/deploy", json={"experiment_name": "exp", "checkpoint": None, "memoryScope": "user"}
    )

    found = http.get(f"{P}/inference/deployments/one?name=exp&experimentName=").json()

    assert (found["status"], "url" in found) == ("pending", False)
    assert http.get(f"{P}/inference/deployments/list?name=other").json() == []


def test_a_checkpoint_rule_nobody_knows_is_refused(http, submitted):
    answer = http.post(f"{P}/inference/deploy", json={"experiment_name": "exp", "checkpoint": "newest"})

    assert (answer.status_code, answer.json()["error_code"]) == (422, "bad-checkpoint")


def test_commands_change_nothing_that_a_repository_manages(world, http):
    spec = {"description": "", "labels": {}, "llm_based": True}
    body = PutResource(owner=Owner(stack="team"), spec=spec, fingerprint=fingerprint(spec, {}))
    resources.put(world, resources.Put(Address("project", "p"), body, None))

    answer = http.request("DELETE", f"{P}/projects/delete", json={"name": "p"})

    assert (answer.status_code, answer.json()["error_code"]) == (409, "owned-by-other")
    assert "'team'" in answer.json()["detail"]


def test_a_repository_cannot_take_the_commands_stack(http, submitted):
    spec = {"description": ""}
    body = PutResource(owner=Owner(stack="imperative"), spec=spec, fingerprint=fingerprint(spec, {}))

    answer = http.put("/api/v1/resources/project/p", json=body.model_dump(mode="json"))
    gone = http.delete("/api/v1/resources/experiment/exp?stack=imperative")

    assert [a.json()["code"] for a in (answer, gone)] == ["reserved-stack"] * 2


def test_a_missing_field_is_one_text(http):
    answer = http.post(f"{P}/experiments/jobs/stop", json={})

    assert (answer.status_code, answer.json()["detail"]) == (422, "experiment_name: Field required")


def test_capabilities_do_not_exist(http):
    assert http.get(f"{P}/capabilities").status_code == 404


def test_the_caller_is_named_and_the_tiers_priced(http):
    assert http.get("/api/users/current").json()["first_name"] == "ada"
    assert http.get("/api/users/credits").json()["spent"] == 0.0
    assert http.get(f"{P}/resources/list").json()["tiers"]["local"]["price_per_node_hour"] == 1.0
