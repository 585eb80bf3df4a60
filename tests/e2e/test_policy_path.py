"""A population of policies in an environment of the repository: plan, apply, training in sandboxes, checkpoints, an empty plan."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from index import package_index

pytestmark = pytest.mark.slow

TINY = """\
algorithm: {name: PPO, batch_size: 32, lr: 1e-3, learn_step: 120, update_epochs: 1}
environment: {name: merge, num_envs: 4}
training: {max_steps: 480, evo_steps: 120, pop_size: 3, hpo: true, eval_episodes: 3, test_episodes: 5}
network: {latent_dim: 16, encoder_config: {hidden_size: [16]}, head_config: {hidden_size: [16]}}
mutation:
  probabilities: {no_mut: 0, rl_hp_mut: 0.5, arch_mut: 0.5, new_layer: 0.5, params_mut: 0}
  rl_hp_selection: {lr: {min: 1e-4, max: 1e-2}}
"""
"""the example's experiment, with a budget that seconds are enough for"""


PACKAGES = ("gymnasium", "numpy", "cloudpickle", "farama-notifications", "typing-extensions")
"""what an environment with an interpreter of its own needs beside its requirements"""


@pytest.fixture(scope="module", autouse=True)
def index():
    """The only package index there is, for the server and what it starts: it has what the environment requires."""
    with package_index() as served, pytest.MonkeyPatch.context() as patch:
        served.add("arenaroad", "1.5", "GRIP = 1.0\n")
        served.add_installed(*PACKAGES)
        for name, value in {"INDEX_URL": served.url, "RETRIES": "0", "CONFIG_FILE": "/dev/null"}.items():
            patch.setenv(f"PIP_{name}", value)
        yield served


@pytest.fixture(scope="module")
def repository(example, commit_all):
    """`examples/policies`, of which the environment `merge` is trained in; it requires a package."""
    root = example("policies", {"manifests/merge_ppo.yaml": TINY})
    home = root / "environments" / "merge"
    code = (home / "merge.py").read_text()
    (home / "merge.py").write_text(code.replace("import numpy as np", "import arenaroad\nimport numpy as np"))
    (home / "requirements.txt").write_text("arenaroad>=1,<2\n")
    with (home / "environment.yaml").open("a") as file:
        file.write("requirements: requirements.txt\n")
    for path in root.glob("*/*.yaml"):
        if path.parent.name != "environments" and path.stem not in {"merge", "merge_ppo", "project"}:
            path.unlink()
    commit_all(root)
    return root


@pytest.fixture(scope="module")
def applied(site, repository):
    return site.run(
        repository, "apply", "--target", "local", "--yes", "--wait", "complete", "--timeout", "4m"
    )


@pytest.fixture(scope="module")
def state(site, repository, applied):
    return site.state(repository)


def test_the_run_completes_with_members_lineage_and_test_scores(site, repository, applied):
    run = site.state(repository)["experiment/merge"]["run"]

    assert run["state"] == "completed"
    assert [member["step"] for member in run["members"]] == [480, 480, 480]
    assert {score["label"]: score["rows"] for score in run["test_scores"]} == {"base": 5, "best": 5}
    assert len(run["lineage"]) == 9


def test_what_the_environment_requires_was_installed_once_where_only_it_sees_it(site, applied, index):
    """By its check and its training; the next environment of the same list finds it by its hash."""
    (folder,) = [path.parent for path in (site.home / "venvs").glob("*/complete")]
    asked = [path for path in index.asked if path.endswith(".whl") and "arenaroad" in path]
    there = [(name / "arenaroad.py").exists() for name in folder.glob("lib/python*/site-packages")]

    assert len(asked) == 1
    assert there == [True]
    assert importlib.util.find_spec("arenaroad") is None


def test_mlflow_shows_the_best_policy_driving_beside_curves_and_lineage(state, mlflow, until):
    run = state["experiment/merge"]["run"]
    parent = run["mlflow_url"].rpartition("/")[2]
    until(lambda: mlflow.get_run(parent).info.status == "FINISHED")
    files = {found.path for found in mlflow.client.list_artifacts(parent)}
    (replay,) = mlflow.client.list_artifacts(parent, "replay")
    film = Path(mlflow.client.download_artifacts(parent, replay.path))

    assert files >= {"replay", "population.png", "lineage.json"}
    assert film.read_bytes()[:6] == b"GIF89a"


def test_the_second_plan_is_empty(site, repository, applied):
    done = site.run(repository, "plan", "--target", "local", "--detailed-exitcode", "--json")

    assert json.loads(done.stdout)["summary"]["unchanged"] == 5


SEES = 8


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
    return wait_for(site, repository, "merge", 1)


def test_the_best_policy_is_deployed_and_acts_alone_and_in_batches_alike(site, deployed):
    seen = np.random.default_rng(0).normal(size=(8, SEES))
    together = ask(site, "merge", obs=npy(seen), batch_size=8)
    alone = [actions(ask(site, "merge", obs=npy(one[None]), batch_size=1)) for one in seen]

    assert together.headers["x-arena-served-by"].startswith(f"merge@1 {deployed['checkpoint']} ")
    assert (actions(together).shape, actions(together).dtype) == ((8,), np.int64)
    assert np.array_equal(np.concatenate(alone), actions(together))


def test_a_request_that_cannot_be_answered_says_why(site, deployed):
    wrong = ask(site, "merge", obs=npy(np.zeros((1, 3))), batch_size=1)
    unknown = ask(site, "nobody", obs=npy(np.zeros((1, SEES))), batch_size=1)

    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-observation")
    assert wrong.json()["message"] == "obs: expected shape (1, 8) (batch first), got (1, 3)"
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-deployment")


def test_routes_for_words_say_that_it_is_a_policy(site, deployed):
    server = site.server()
    headers = {"Authorization": f"Bearer {server['token']}"}
    with httpx.Client(base_url=server["url"], headers=headers, timeout=30) as http:
        status = http.get("/i/merge/status").json()["agent"]
        words = http.post("/i/merge/generate", json={"prompts": ["left?"]})
        listed = http.get("/v1/models").json()["data"]
        chat = http.post("/v1/completions", json={"model": "merge", "prompt": "left?"})

    assert status == {
        "algo": "PPO",
        "multi_agent": False,
        "llm": False,
        "recurrent": False,
        "supervised": False,
    }
    assert (words.status_code, words.json()["message"]) == (
        400,
        "deployment merge is a policy: use get_action",
    )
    assert (listed, chat.status_code) == ([], 400)


def test_another_checkpoint_takes_over_and_a_rollback_brings_the_first_back(site, repository, deployed):
    first = deployed["checkpoint"]
    other = "step_480/m0" if first != "step_480/m0" else "step_480/m1"
    file = repository / "deployments" / "merge.yaml"
    before = file.read_text()
    file.write_text(before.replace("checkpoint: best", f"checkpoint: {other}"))
    site.run(repository, "apply", "--target", "local", "--yes", "--allow-dirty")
    wait_for(site, repository, "merge", 2)
    new, old = (ask(site, name, obs=npy(np.zeros((1, SEES))), batch_size=1) for name in ("merge", "merge@1"))
    site.run(repository, "rollback", "deployment/merge", "--target", "local")
    back = wait_for(site, repository, "merge", 1)
    file.write_text(before)
    site.run(repository, "apply", "--target", "local", "--yes", "--allow-dirty")
    lifted = wait_for(site, repository, "merge", 1)

    assert new.headers["x-arena-served-by"].startswith(f"merge@2 {other} ")
    assert old.headers["x-arena-served-by"].startswith(f"merge@1 {first} ")
    assert (back["state"], back["checkpoint"]) == ("held", first)
    assert lifted["checkpoint"] == first


def test_a_pulled_checkpoint_is_a_policy_and_its_spec(site, repository, applied, tmp_path):
    folder = tmp_path / "policy"
    site.run(repository, "checkpoints", "pull", "merge", "--target", "local", "--out", str(folder))
    spec = json.loads((folder / "policy.json").read_text())

    assert (spec["algorithm"], spec["spaces"]["does"]["sizes"]) == ("PPO", [4])
    assert (folder / "policy.safetensors").is_file()
