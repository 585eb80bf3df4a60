"""A population of policies travels the same path: plan, apply, training, checkpoints, an empty plan."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import time

import httpx
import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FILES = {
    "arena.yaml": """\
name: balance-team
project: balance
targets: {local: {platform: local}}
default_target: local
---
kind: Project
name: balance
""",
    "manifests/dqn.yaml": """\
algorithm: {name: DQN, batch_size: 16, lr: 1e-3, learn_step: 4}
environment: {name: CartPole-v1, num_envs: 4}
training: {max_steps: 480, evo_steps: 120, pop_size: 3, hpo: true, eval_episodes: 3, test_episodes: 5}
network: {latent_dim: 16, encoder_config: {hidden_size: [16]}, head_config: {hidden_size: [16]}}
mutation:
  probabilities: {no_mut: 0, rl_hp_mut: 0.5, arch_mut: 0.5, new_layer: 0.5, params_mut: 0}
  rl_hp_selection: {lr: {min: 1e-4, max: 1e-2}}
""",
    "experiments/balance.yaml": """\
kind: Experiment
name: balance
owner: rl-team
manifest: ../manifests/dqn.yaml
tier: local
""",
    "deployments/pole.yaml": """\
kind: Deployment
name: pole
experiment: balance
checkpoint: best
""",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("balance")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def applied(site, repository):
    return site.run(
        repository, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "4m"
    )


def test_the_run_completes_with_members_lineage_and_test_scores(site, repository, applied):
    run = site.state(repository)["experiment/balance"]["run"]

    assert run["state"] == "completed"
    assert [member["step"] for member in run["members"]] == [480, 480, 480]
    assert {score["label"]: score["rows"] for score in run["test_scores"]} == {"base": 5, "best": 5}
    assert len(run["lineage"]) == 9


def test_the_second_plan_is_empty(site, repository, applied):
    done = site.run(repository, "plan", "--target", "local", "--detailed-exitcode", "--json")

    assert json.loads(done.stdout)["summary"]["unchanged"] == 3


def ask(site, name, **body):
    server = site.server()
    headers = {"Authorization": f"Bearer {server['token']}"}
    return httpx.post(f"{server['url']}/i/{name}/get_action", json=body, headers=headers, timeout=30)


def npy(values):
    into = io.BytesIO()
    np.save(into, values, allow_pickle=False)
    return base64.b64encode(into.getvalue()).decode()


def actions(answer):
    assert answer.status_code == 200, answer.text
    return np.load(io.BytesIO(base64.b64decode(answer.json()["action"])), allow_pickle=False)


def wait_for(site, repository, name, revision):
    """The deployment, once this revision answers."""
    deadline = time.monotonic() + 60
    while (found := site.state(repository)[f"deployment/{name}"]["deployment"])["revision"] != revision:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


@pytest.fixture(scope="module")
def deployed(site, repository, applied):
    return wait_for(site, repository, "pole", 1)


def test_the_best_policy_is_deployed_and_acts_alone_and_in_batches_alike(site, deployed):
    seen = np.random.default_rng(0).normal(size=(8, 4))
    together = ask(site, "pole", obs=npy(seen), batch_size=8)
    alone = [actions(ask(site, "pole", obs=npy(one[None]), batch_size=1)) for one in seen]

    assert together.headers["x-arena-served-by"].startswith(f"pole@1 {deployed['checkpoint']} ")
    assert (actions(together).shape, actions(together).dtype) == ((8,), np.int64)
    assert np.array_equal(np.concatenate(alone), actions(together))


def test_a_request_that_cannot_be_answered_says_why(site, deployed):
    wrong = ask(site, "pole", obs=npy(np.zeros((1, 3))), batch_size=1)
    unknown = ask(site, "nobody", obs=npy(np.zeros((1, 4))), batch_size=1)

    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-observation")
    assert wrong.json()["message"] == "obs: expected shape (1, 4) (batch first), got (1, 3)"
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-deployment")


def test_routes_for_words_say_that_it_is_a_policy(site, deployed):
    server = site.server()
    headers = {"Authorization": f"Bearer {server['token']}"}
    with httpx.Client(base_url=server["url"], headers=headers, timeout=30) as http:
        status = http.get("/i/pole/status").json()["agent"]
        words = http.post("/i/pole/generate", json={"prompts": ["left?"]})
        listed = http.get("/v1/models").json()["data"]
        chat = http.post("/v1/completions", json={"model": "pole", "prompt": "left?"})

    assert status == {
        "algo": "DQN",
        "multi_agent": False,
        "llm": False,
        "recurrent": False,
        "supervised": False,
    }
    assert (words.status_code, words.json()["message"]) == (
        400,
        "deployment pole is a policy: use get_action",
    )
    assert (listed, chat.status_code) == ([], 400)


def test_another_checkpoint_takes_over_and_a_rollback_brings_the_first_back(site, repository, deployed):
    first = deployed["checkpoint"]
    other = "step_480/m0" if first != "step_480/m0" else "step_480/m1"
    file = repository / "deployments" / "pole.yaml"
    file.write_text(FILES["deployments/pole.yaml"].replace("best", other))
    site.run(repository, "apply", "--target", "local", "--yes", "--allow-dirty")
    wait_for(site, repository, "pole", 2)
    new, old = (ask(site, name, obs=npy(np.zeros((1, 4))), batch_size=1) for name in ("pole", "pole@1"))
    site.run(repository, "rollback", "deployment/pole", "--target", "local")
    back = wait_for(site, repository, "pole", 1)
    file.write_text(FILES["deployments/pole.yaml"])
    site.run(repository, "apply", "--target", "local", "--yes", "--allow-dirty")
    lifted = wait_for(site, repository, "pole", 1)

    assert new.headers["x-arena-served-by"].startswith(f"pole@2 {other} ")
    assert old.headers["x-arena-served-by"].startswith(f"pole@1 {first} ")
    assert (back["state"], back["checkpoint"]) == ("held", first)
    assert lifted["checkpoint"] == first


def test_a_pulled_checkpoint_is_a_policy_and_its_spec(site, repository, applied, tmp_path):
    folder = tmp_path / "policy"
    site.run(repository, "checkpoints", "pull", "balance", "--target", "local", "--out", str(folder))
    spec = json.loads((folder / "policy.json").read_text())

    assert (spec["algorithm"], spec["spaces"]["does"]["sizes"]) == ("DQN", [2])
    assert (folder / "policy.safetensors").is_file()
