"""What an experiment trains on: its own references, then what the manifest names."""

from __future__ import annotations

import pytest
from infra_repo import EXPERIMENT, inputs, notes, with_environment

from arena_gitops.spec.resource import Address

STARTS = {
    "group_size: 16": "group_size: 8",
    "learn_step: 16384": "learn_step: 8192",
    "learn_step: 16": "learn_step: 20",
}
"""gspo, ppo_recurrent and maddpg start outside the range they give evolution: an error of its own"""


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
