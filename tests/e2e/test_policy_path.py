"""A population of policies travels the same path: plan, apply, training, checkpoints, an empty plan."""

from __future__ import annotations

import json
import subprocess

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

    assert json.loads(done.stdout)["summary"]["unchanged"] == 2


def test_a_pulled_checkpoint_is_a_policy_and_its_spec(site, repository, applied, tmp_path):
    folder = tmp_path / "policy"
    site.run(repository, "checkpoints", "pull", "balance", "--target", "local", "--out", str(folder))
    spec = json.loads((folder / "policy.json").read_text())

    assert (spec["algorithm"], spec["spaces"]["does"]["sizes"]) == ("DQN", [2])
    assert (folder / "policy.safetensors").is_file()
