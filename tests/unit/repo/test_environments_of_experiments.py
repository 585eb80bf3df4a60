"""Which environment an experiment acts in: one of the repository, a registered id, or none."""

from __future__ import annotations

import pytest
from infra_repo import BARE, EXPERIMENT, inputs, notes, with_environment

from arena_gitops.errors import Severity

GYM = """\
algorithm: {name: DQN}
environment: {name: CartPole-v1}
training: {max_steps: 100}
"""


def test_a_registered_gymnasium_id_needs_no_resource(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM)
    state = repo.load()
    experiment = state.resources[EXPERIMENT]
    assert experiment.spec["inputs"]["environment"]["gym_id"] == "CartPole-v1"
    assert not experiment.refusals
    assert [n.code for n in state.notes if n.severity is Severity.WARNING] == []


def test_an_unknown_gymnasium_id_is_refused_with_a_near_one(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "CartPole-v9"))
    assert repo.problems() == ["manifests/grpo.yaml:2:21 unknown-environment"]
    assert "Did you mean 'CartPole-v" in repo.messages()


def test_an_environment_of_the_repository_comes_before_gymnasium(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "grid"))
    repo.write("environments/grid/environment.yaml", "kind: Environment\nname: grid\nentrypoint: grid:Grid\n")
    repo.write("environments/grid/grid.py", "class Grid:\n    pass\n")
    assert inputs(repo)["environment"]["address"] == "environment/grid"


ENVIRONMENT = "kind: Environment\nname: grid\nentrypoint: grid:Grid\n"


@pytest.fixture
def grid(repo):
    """A repository with an environment of its own."""
    repo.write("environments/grid/environment.yaml", ENVIRONMENT)
    repo.write("environments/grid/grid.py", "class Grid:\n    pass\n")
    return repo


def test_a_text_manifest_may_name_an_environment_of_the_repository(grid):
    with_environment(grid, "name: grid")
    assert inputs(grid)["environment"]["address"] == "environment/grid"
    assert inputs(grid)["dataset"] is None


def test_the_experiments_environment_wins_over_a_gymnasium_id(grid):
    grid.write("experiments/sums-grpo.yaml", BARE + "environment: grid\n")
    grid.write("manifests/grpo.yaml", GYM)
    assert inputs(grid)["environment"]["entrypoint"] == "grid:Grid"
    assert [note.partition(" ")[0] for note in notes(grid)] == ["manifests/grpo.yaml:2:21"]


@pytest.mark.parametrize(
    ("algorithm", "several", "said"),
    [
        ("IPPO", True, ()),
        ("PPO", False, ()),
        ("PPO", True, ("PPO trains one agent, and environment/grid has several",)),
        (
            "IPPO",
            False,
            ("IPPO trains several agents, and environment/grid has one (multi_agent: true is not written)",),
        ),
    ],
)
def test_an_environment_and_its_algorithm_agree_on_how_many_act(grid, algorithm, several, said):
    grid.write("environments/grid/environment.yaml", f"{ENVIRONMENT}multi_agent: {str(several).lower()}\n")
    grid.write("experiments/sums-grpo.yaml", BARE + "environment: grid\n")
    manifest = f"algorithm: {{name: {algorithm}}}\nenvironment: {{name: grid, num_envs: 2}}\n"
    grid.write("manifests/grpo.yaml", manifest + "training: {max_steps: 64, evo_steps: 32, pop_size: 2}\n")

    assert grid.load().resources[EXPERIMENT].refusals == said


def test_a_recorded_dataset_is_found_by_the_environments_name(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "sums"))
    assert inputs(repo)["dataset"]["address"] == "dataset/sums"


def test_an_env_config_file_of_a_manifest_is_read(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "CartPole-v1, env_config: env_config.yaml"))
    repo.write("manifests/env_config.yaml", "size: 4\n")
    assert inputs(repo)["environment"]["env_config"] == {"size": 4}


def test_a_faulty_env_config_file_of_a_manifest_is_reported(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "CartPole-v1, env_config: gone.yaml"))
    assert repo.problems() == ["manifests/grpo.yaml:2:46 missing-file"]


def test_a_bandit_needs_no_environment(repo):
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.write(
        "manifests/grpo.yaml",
        "algorithm: {name: NeuralUCB}\nenvironment: {name: IRIS, features: a.csv, targets: b.csv}\n"
        "training: {max_steps: 100}\n",
    )
    assert inputs(repo)["environment"] is None


@pytest.mark.parametrize("name", ["sums", "grid"])
def test_a_manifest_that_names_a_faulty_resource_adds_no_problem(grid, name):
    grid.edit("datasets/sums.yaml", "category: reasoning", "category: x")
    grid.edit("environments/grid/environment.yaml", "entrypoint: grid:Grid", "entrypoint: grid")
    with_environment(grid, f"name: {name}", "reward_file_path: ../rewards/exact.py")
    assert [problem.partition(":")[0] for problem in grid.problems()] == [
        "datasets/sums.yaml",
        "environments/grid/environment.yaml",
    ]


def test_a_gym_manifest_that_names_a_faulty_environment_adds_no_problem(grid):
    grid.edit("environments/grid/environment.yaml", "entrypoint: grid:Grid", "entrypoint: grid")
    grid.write("experiments/sums-grpo.yaml", BARE)
    grid.write("manifests/grpo.yaml", GYM.replace("CartPole-v1", "grid"))
    assert grid.problems() == ["environments/grid/environment.yaml:3:13 invalid-value"]
