"""What an experiment trains on: its own references, then what the manifest names."""

from __future__ import annotations

import pytest

from arena_gitops.errors import Severity
from arena_gitops.spec.resource import Address

EXPERIMENT = Address("experiment", "sums-grpo")
BARE = "kind: Experiment\nname: sums-grpo\nmanifest: ../manifests/grpo.yaml\n"
STARTS = {
    "group_size: 16": "group_size: 8",
    "learn_step: 16384": "learn_step: 8192",
    "learn_step: 16": "learn_step: 20",
}
"""gspo, ppo_recurrent and maddpg start outside the range they give evolution: an error of its own"""
GYM = """\
algorithm: {name: DQN}
environment: {name: CartPole-v1}
training: {max_steps: 100}
"""


def inputs(repo):
    return repo.load().resources[EXPERIMENT].spec["inputs"]


def notes(repo, code="composition"):
    return [f"{n.span} {n.message}" for n in repo.load().notes if n.code == code]


def with_environment(repo, *lines):
    """The experiment without references, and a manifest whose environment section is these lines."""
    repo.write("experiments/sums-grpo.yaml", BARE)
    repo.edit("manifests/grpo.yaml", "  name: sums\n", "".join(f"  {line}\n" for line in lines))


def test_names_of_the_manifest_are_defaults(repo):
    with_environment(repo, "name: sums", "reward_file_path: ../rewards/exact.py")
    assert inputs(repo)["dataset"]["address"] == "dataset/sums"
    assert inputs(repo)["reward"]["address"] == "reward/exact"


@pytest.mark.parametrize("key", ["reward_file_path", "rubric_file_path"])
def test_a_reward_file_outside_the_roots_is_read_when_the_manifest_names_it(repo, key):
    repo.write("lib/brevity.py", "def score(question, answer, completion):\n    return 1.0\n")
    with_environment(repo, "name: sums", f"{key}: ../lib/brevity.py", "reward_fn_name: score")
    assert inputs(repo)["reward"]["function"] == "score"
    assert Address("reward", "brevity") in repo.load().resources


def test_the_experiments_reference_wins_and_a_note_says_so(repo):
    repo.write(
        "datasets/other.yaml", (repo.root / "datasets/sums.yaml").read_text().replace("sums\n", "other\n", 1)
    )
    repo.edit("experiments/sums-grpo.yaml", "dataset: sums", "dataset: other")
    assert inputs(repo)["dataset"]["address"] == "dataset/other"
    (note,) = notes(repo)
    assert note.startswith("manifests/grpo.yaml:6:9 experiment/sums-grpo uses dataset/other")


def test_another_reward_file_in_the_manifest_is_noted(repo):
    repo.edit(
        "manifests/grpo.yaml", "  name: sums\n", "  name: sums\n  reward_file_path: ../rewards/old.py\n"
    )
    assert inputs(repo)["reward"]["address"] == "reward/exact"
    assert [note.partition(" ")[0] for note in notes(repo)] == ["manifests/grpo.yaml:7:21"]


def test_equal_names_need_no_note(repo):
    assert notes(repo) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["name: sumz"], "manifests/grpo.yaml:6:9 unknown-environment"),
        (["dataset: sumz"], "manifests/grpo.yaml:6:12 unknown-environment"),
        (["dataset: openai/gsm8k"], "manifests/grpo.yaml:6:12 unknown-dataset"),
        (["hf_dataset_id: openai/gsm8k"], "manifests/grpo.yaml:6:18 unknown-dataset"),
        (["dataset_path: other.csv"], "manifests/grpo.yaml:6:17 unknown-dataset"),
        (["name: sums"], "experiments/sums-grpo.yaml:1:1 no-reward"),
        (["num_envs: 1"], "experiments/sums-grpo.yaml:1:1 no-dataset"),
        (["name: sums", "reward_file_path: ../gone.py"], "manifests/grpo.yaml:7:21 missing-file"),
    ],
)
def test_a_manifest_that_names_nothing_known_is_an_error_there(repo, lines, expected):
    with_environment(repo, *lines)
    assert expected in repo.problems()


def test_a_near_name_is_suggested(repo):
    with_environment(repo, "name: sumz")
    assert "Did you mean 'sums'?" in repo.messages()


@pytest.mark.parametrize("line", ["dataset: openai/gsm8k", "hf_dataset_id: openai/gsm8k"])
def test_a_dataset_is_found_by_its_hub_id(repo, line):
    repo.write(
        "datasets/hub.yaml",
        "kind: Dataset\nname: hub\ncategory: reasoning\nhf: {id: openai/gsm8k}\n"
        "column_mapping: {question: q, answer: a}\n",
    )
    with_environment(repo, line, "reward_file_path: ../rewards/exact.py")
    assert inputs(repo)["dataset"]["hf"]["id"] == "openai/gsm8k"


def test_a_dataset_is_found_by_its_file(repo):
    with_environment(repo, "dataset_path: ../datasets/data/sums.csv", "reward_file_path: ../rewards/exact.py")
    assert inputs(repo)["dataset"]["address"] == "dataset/sums"


def test_rows_of_another_category_are_refused(repo):
    repo.edit("datasets/sums.yaml", "reasoning", "sft")
    repo.edit(
        "datasets/sums.yaml", "question: question\n  answer: answer", "prompt: question\n  target: answer"
    )
    assert repo.problems() == ["experiments/sums-grpo.yaml:4:10 dataset-category"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Solve {qestion}.", "Did you mean {question}?"),
        ("Solve {sum}.", "There are: {question}, {answer}."),
        ("{question} and {question_id}", "{question_id} is filled by nothing: dataset/sums has no such role"),
    ],
)
def test_a_template_that_names_what_the_rows_lack_is_an_error_there(repo, text, said):
    template = f'  name: sums\n  prompt_template:\n    system_0: You add.\n    user_1: "{text}"\n'
    repo.edit("manifests/grpo.yaml", "  name: sums\n", template)
    assert repo.problems() == ["manifests/grpo.yaml:9:13 unknown-placeholder"]
    assert said in repo.messages()


def test_a_column_in_a_template_is_told_its_role(repo):
    repo.edit("datasets/sums.yaml", "question: question", "question: sum")
    repo.edit("datasets/data/sums.csv", "question", "sum")
    repo.edit(
        "manifests/grpo.yaml", "  name: sums\n", "  name: sums\n  prompt_template: {user_0: 'Add: {sum}'}\n"
    )
    assert repo.problems() == ["manifests/grpo.yaml:7:29 unknown-placeholder"]
    assert "Did you mean {question}?" in repo.messages()


def test_a_set_line_with_an_unknown_placeholder_is_its_place(repo):
    line = "set: {environment.prompt_template: {user_0: '{q}'}}\ndataset:"
    repo.edit("experiments/sums-grpo.yaml", "dataset:", line)
    (problem,) = repo.problems()
    assert problem.startswith("experiments/sums-grpo.yaml:4:")


@pytest.mark.parametrize(
    "text", [r"Put {question} in \boxed{number}.", '{question}: x_{i} of ${HOME}, {{n}} or { n }, {"a": 1}']
)
def test_braces_of_formulas_and_code_are_text(repo, text):
    template = f"  name: sums\n  prompt_template:\n    user_0: |\n      {text}\n"
    repo.edit("manifests/grpo.yaml", "  name: sums\n", template)
    assert repo.load().resources[EXPERIMENT]


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


def test_overrides_are_applied_to_the_raw_manifest(repo):
    repo.edit("experiments/sums-grpo.yaml", "dataset:", "set: {training.max_steps: 20_000}\ndataset:")
    experiment = repo.load().resources[EXPERIMENT]
    assert experiment.spec["manifest"]["training"]["max_steps"] == 20_000
    assert str(experiment.spans["manifest.training.max_steps"]) == "experiments/sums-grpo.yaml:4:27"


def test_overrides_of_one_experiment_leave_another_alone(repo):
    text = (repo.root / "experiments/sums-grpo.yaml").read_text()
    repo.write(
        "experiments/a.yaml", text.replace("sums-grpo", "a", 1) + "set: {network.lora_config.lora_r: 4}\n"
    )
    state = repo.load()
    ranks = [
        state.resources[Address("experiment", name)].spec["manifest"]["network"]["lora_config"]["lora_r"]
        for name in ("a", "sums-grpo")
    ]
    assert ranks[0] == 4
    assert ranks[1] != 4


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("training.max_stepz: 5", "unknown-key"),
        ("training.max_steps: many", "invalid-value"),
        ("trainig.max_steps: 5", "unknown-key"),
    ],
)
def test_a_wrong_override_is_an_error_at_its_own_place(repo, override, code):
    repo.edit("experiments/sums-grpo.yaml", "dataset:", f"set:\n  {override}\ndataset:")
    (problem,) = repo.problems()
    assert problem.startswith("experiments/sums-grpo.yaml:5:")
    assert problem.endswith(code)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("lr: 1e-5", "lr: fast", "manifests/grpo.yaml:4:7 invalid-value"),
        ("lr: 1e-5", "lrr: 1e-5", "manifests/grpo.yaml:4:3 unknown-key"),
        ("name: GRPO", "name: GRPOO", "manifests/grpo.yaml:2:9 unknown-algorithm"),
        ("  pretrained_model_name_or_path: tiny\n", "", "manifests/grpo.yaml:12:3 missing-key"),
    ],
)
def test_a_fault_of_the_manifest_is_placed_in_the_manifest(repo, old, new, expected):
    repo.edit("manifests/grpo.yaml", old, new)
    assert repo.problems() == [expected]


def test_a_fault_of_a_shared_manifest_is_reported_once(repo):
    text = (repo.root / "experiments/sums-grpo.yaml").read_text()
    repo.write("experiments/twin.yaml", text.replace("sums-grpo", "twin", 1))
    repo.edit("manifests/grpo.yaml", "lr: 1e-5", "lr: fast")
    assert repo.problems() == ["manifests/grpo.yaml:4:7 invalid-value"]


def test_a_manifest_outside_the_roots_is_read_when_named(repo):
    repo.write("shared/m.yaml", (repo.root / "manifests/grpo.yaml").read_text())
    repo.remove("manifests/grpo.yaml")
    repo.edit("experiments/sums-grpo.yaml", "../manifests/grpo.yaml", "../shared/m.yaml")
    assert EXPERIMENT in repo.load().resources


def test_a_resource_is_no_manifest(repo):
    repo.edit("experiments/sums-grpo.yaml", "../manifests/grpo.yaml", "../datasets/sums.yaml")
    assert "datasets/sums.yaml:1:7 not-a-manifest" in repo.problems()


def test_published_manifests_load_in_an_experiment(repo, shared):
    for number, manifest in enumerate(sorted((shared / "manifests").rglob("*.yaml"))):
        text = manifest.read_text()
        for outside, inside in STARTS.items():
            text = text.replace(f"{outside}\n", f"{inside}\n")
        repo.write(f"manifests/m{number}.yaml", text)
        repo.write(
            f"experiments/m{number}.yaml",
            f"kind: Experiment\nname: m{number}\nmanifest: ../manifests/m{number}.yaml\n",
        )
    # what they name is not in this repository; none of them may be wrong in itself
    codes = {problem.partition(" ")[2] for problem in repo.problems()}
    assert codes <= {"unknown-environment", "unknown-dataset", "no-reward", "no-dataset", "missing-file"}


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

    assert grid.load().resources[Address("experiment", "sums-grpo")].refusals == said


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


def test_another_function_of_a_declared_reward_file_is_not_that_reward(repo):
    with_environment(repo, "name: sums", "reward_file_path: ../rewards/exact.py", "reward_fn_name: strict")
    assert repo.problems() == ["manifests/grpo.yaml:7:21 unknown-reward"]


def test_a_reward_file_of_the_manifest_without_its_function_is_an_error(repo):
    repo.write("lib/brevity.py", "def score(q, a, c):\n    return 1.0\n")
    with_environment(repo, "name: sums", "reward_file_path: ../lib/brevity.py")
    assert "lib/brevity.py:1:1 missing-function" in repo.problems()


def test_a_reward_file_with_a_syntax_error_is_reported_once(repo):
    repo.write("rewards/exact.py", "def reward(:\n")
    with_environment(repo, "name: sums", "reward_file_path: ../rewards/exact.py")
    assert repo.problems() == ["rewards/exact.py:1:12 python-syntax"]


def test_an_sft_experiment_needs_no_reward(repo):
    repo.write("manifests/grpo.yaml", (repo.root / "manifests/grpo.yaml").read_text().replace("GRPO", "SFT"))
    repo.edit("datasets/sums.yaml", "reasoning", "sft")
    repo.edit(
        "datasets/sums.yaml", "question: question\n  answer: answer", "prompt: question\n  target: answer"
    )
    repo.edit("experiments/sums-grpo.yaml", "reward: exact\n", "")
    assert inputs(repo)["reward"] is None


def test_rows_of_the_hub_are_pinned_in_the_dataset(repo):
    repo.write(
        "datasets/sums.yaml",
        "kind: Dataset\nname: sums\ncategory: reasoning\nhf: {id: openai/gsm8k}\n"
        "column_mapping: {question: q, answer: a}\n",
    )
    repo.edit("experiments/sums-grpo.yaml", "dataset: sums", "dataset: sums@sha256:" + "0" * 64)
    assert repo.problems() == ["experiments/sums-grpo.yaml:4:10 pinned-version"]


def test_a_manifest_that_is_a_list_or_missing_or_unreadable_is_an_error(repo):
    repo.write("manifests/grpo.yaml", "- 1\n")
    assert "manifests/grpo.yaml:1:1 not-a-mapping" in repo.problems()
    repo.edit("experiments/sums-grpo.yaml", "../manifests/grpo.yaml", "gone.yaml")
    assert "experiments/sums-grpo.yaml:3:11 missing-file" in repo.problems()
    repo.edit("experiments/sums-grpo.yaml", "gone.yaml", "../shared/m.yaml")
    repo.write("shared/m.yaml", "a: [1\n")
    assert "shared/m.yaml:1:4 yaml-syntax" in repo.problems()


def test_what_nobody_wrote_is_recorded_as_a_default(repo):
    before = repo.load().resources[EXPERIMENT].spec["defaulted"]
    assert {"algorithm.clip_coef_high", "training.target_score"} <= set(before)
    assert not {"algorithm.name", "training.max_steps"} & set(before)
    repo.edit(
        "experiments/sums-grpo.yaml", "dataset: sums", "set: {training.target_score: 2.0}\ndataset: sums"
    )
    after = repo.load().resources[EXPERIMENT].spec["defaulted"]
    assert set(before) - set(after) == {"training.target_score"}
