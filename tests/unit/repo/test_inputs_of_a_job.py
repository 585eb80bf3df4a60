"""Datasets, rewards and environments: files that exist, columns and functions that exist, digests."""

from __future__ import annotations

import pytest

from arena_gitops.spec.digest import sha256_bytes
from arena_gitops.spec.resource import Address

DATASET, REWARD = Address("dataset", "sums"), Address("reward", "exact")
GRID = Address("environment", "grid")
ENVIRONMENT = """\
kind: Environment
name: grid
source: .
entrypoint: grid:Grid
requirements: requirements.txt
config: env_config.yaml
"""


@pytest.fixture
def grid(repo):
    repo.write("environments/grid/environment.yaml", ENVIRONMENT)
    repo.write("environments/grid/grid.py", "from parts.cell import Cell\n\n\nclass Grid:\n    pass\n")
    repo.write("environments/grid/parts/cell.py", "class Cell:\n    pass\n")
    repo.write("environments/grid/requirements.txt", "# tools\nnumpy>=2  # arrays\n\nscipy\n")
    repo.write("environments/grid/env_config.yaml", "size: 4\n")
    return repo


# Datasets


def test_a_missing_column_names_those_that_exist(repo):
    repo.edit("datasets/sums.yaml", "answer: answer", "answer: anwser")
    assert repo.problems() == ["datasets/sums.yaml:7:11 missing-column"]
    assert "has no column 'anwser'; it has: question, answer" in repo.messages()
    assert "Did you mean 'answer'?" in repo.messages()


def test_every_missing_column_is_reported(repo):
    repo.write("datasets/data/sums.csv", "q,a\n1,2\n")
    assert repo.problems() == [
        "datasets/sums.yaml:6:13 missing-column",
        "datasets/sums.yaml:7:11 missing-column",
    ]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("sums.csv", b"", "empty-dataset"),
        ("sums.csv", b"question,\xff\n", "dataset-format"),
        ("sums.csv", b'"question,answer\n', "dataset-format"),
        ("sums.jsonl", b'{"question": 1, "answer": 2}\nno\n', "dataset-format"),
        ("sums.jsonl", b"[1]\n", "dataset-format"),
        ("sums.jsonl", b"\n", "empty-dataset"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says_is_refused(repo, name, content, code):
    repo.edit("datasets/sums.yaml", "data/sums.csv", f"data/{name}")
    repo.write(f"datasets/data/{name}", content)
    assert repo.problems() == [f"datasets/sums.yaml:4:7 {code}"]


def test_jsonl_columns_are_keys_of_its_rows(repo):
    repo.edit("datasets/sums.yaml", "data/sums.csv", "data/sums.jsonl")
    repo.write("datasets/data/sums.jsonl", '{"question": "1+1?"}\n\n{"answer": "#### 2", "question": ""}\n')
    assert repo.load().resources[DATASET].spec["format"] == "jsonl"


def test_only_the_first_rows_of_a_long_file_are_looked_at(repo):
    repo.edit("datasets/sums.yaml", "data/sums.csv", "data/sums.jsonl")
    repo.write("datasets/data/sums.jsonl", '{"question": "1+1?", "answer": "2"}\n' * 100 + "not JSON\n")
    assert repo.load().resources[DATASET].spec["format"] == "jsonl"


def test_quoted_headers_and_a_byte_order_mark_are_understood(repo):
    repo.write("datasets/data/sums.csv", b'\xef\xbb\xbf"question","answer"\r\n1,2\r\n')
    assert DATASET in repo.load().resources


def test_the_rows_of_a_parquet_file_are_left_to_the_platform(repo):
    repo.edit("datasets/sums.yaml", "data/sums.csv", "data/sums.parquet")
    repo.write("datasets/data/sums.parquet", b"PAR1")
    assert repo.load().resources[DATASET].spec["digest"] == sha256_bytes(b"PAR1")


def test_a_path_is_looked_up_beside_the_document_then_at_the_root(repo):
    repo.write("data/sums.csv", "question,answer\nroot,1\n")
    beside = repo.load().resources[DATASET].spec["digest"]
    repo.remove("datasets/data/sums.csv")
    assert repo.load().resources[DATASET].spec["digest"] != beside


@pytest.mark.parametrize("path", ["../../secret.csv", "link.csv", "../../../etc/passwd.csv"])
def test_a_path_cannot_leave_the_repository(repo, path):
    (repo.root.parent / "secret.csv").write_text("question,answer\n")
    (repo.root / "datasets/link.csv").symlink_to(repo.root.parent / "secret.csv")
    repo.edit("datasets/sums.yaml", "data/sums.csv", path)
    assert repo.problems() == ["datasets/sums.yaml:4:7 outside-repository"]


def test_a_linked_document_outside_the_repository_is_not_read(repo):
    (repo.root.parent / "x.yaml").write_text("kind: Project\nname: x\n")
    (repo.root / "experiments/x.yaml").symlink_to(repo.root.parent / "x.yaml")
    assert repo.problems() == ["experiments/x.yaml:1:1 outside-repository"]


def test_an_ignored_file_is_no_part_of_the_repository(repo):
    repo.write(".gitignore", "*.csv\n")
    assert repo.problems() == ["datasets/sums.yaml:4:7 ignored-file"]


def test_a_missing_file_says_where_one_of_its_name_is(repo):
    repo.edit("datasets/sums.yaml", "data/sums.csv", "dta/sums.csv")
    assert "There is datasets/data/sums.csv" in repo.messages()


# Rewards


def test_a_python_file_in_rewards_is_a_reward_by_itself(repo):
    spec = repo.load().resources[REWARD].spec
    assert (spec["function"], spec["entry"], spec["cases"]) == ("reward", "rewards/exact.py", [])


def test_underscores_of_a_file_name_become_dashes(repo):
    repo.write("rewards/short_and_exact.py", "def reward(question, answer, completion):\n    return 0.0\n")
    assert Address("reward", "short-and-exact") in repo.load().resources


def test_a_file_without_the_function_is_only_a_module(repo):
    repo.write("rewards/shared.py", "X = 1\n")
    assert Address("reward", "shared") not in repo.load().resources


def test_a_reward_document_takes_the_place_of_the_bare_file(repo):
    repo.write("rewards/exact.yaml", "kind: Reward\nname: strict\nfile: exact.py\nnetwork: full\n")
    repo.edit("experiments/sums-grpo.yaml", "reward: exact", "reward: strict")
    rewards = [address.name for address in repo.load().resources if address.kind == "reward"]
    assert rewards == ["strict"]


def test_a_syntax_error_is_placed_in_the_reward_itself(repo):
    repo.write("rewards/exact.py", "def reward(question, answer, completion):\n    return (1.0\n")
    assert repo.problems() == ["rewards/exact.py:2:12 python-syntax"]


def test_a_reward_without_its_file_is_an_error(repo):
    repo.write("rewards/strict.yaml", "kind: Reward\nname: strict\nfile: exat.py\n")
    assert repo.problems() == ["rewards/strict.yaml:3:7 missing-file"]
    assert "There is rewards/exact.py" in repo.messages()


def test_a_missing_function_suggests_a_near_one(repo):
    repo.write("rewards/exact.yaml", "kind: Reward\nname: exact\nfile: exact.py\nfunction: rewards\n")
    assert repo.problems() == ["rewards/exact.yaml:4:11 missing-function"]
    assert "Did you mean 'reward'?" in repo.messages()


def test_a_reward_brings_every_file_it_imports(repo):
    repo.write(
        "rewards/exact.py",
        "import re\nimport lib.text.words as w\nfrom near import clip\n\n\n"
        "def reward(question, answer, completion):\n    from lib import late\n    return clip(late, w, re)\n",
    )
    repo.write("rewards/near.py", "def clip(*x):\n    return 1.0\n")
    repo.write("lib/__init__.py", "")
    repo.write("lib/late.py", "")
    repo.write("lib/text/__init__.py", "from . import marks\n")
    repo.write("lib/text/words.py", "from ..late import x\n")
    repo.write("lib/text/marks.py", "")
    repo.write("lib/unused.py", "")
    resource = repo.load().resources[REWARD]
    assert list(resource.spec["files"]) == [
        "lib/__init__.py",
        "lib/late.py",
        "lib/text/__init__.py",
        "lib/text/marks.py",
        "lib/text/words.py",
        "rewards/exact.py",
        "rewards/near.py",
    ]
    assert {blob.digest for blob in resource.blobs} == set(resource.spec["files"].values())


def test_an_edit_of_an_imported_file_is_an_edit_of_the_reward(repo):
    repo.write("rewards/near.py", "X = 1.0\n")
    repo.write("rewards/exact.py", "from near import X\n\n\ndef reward(q, a, c):\n    return X\n")
    before = repo.load().resources[REWARD].fingerprint
    repo.write("rewards/near.py", "X = 2.0\n")
    assert repo.load().resources[REWARD].fingerprint.data != before.data


def test_moving_a_reward_with_what_it_imports_changes_nothing(repo):
    repo.write("rewards/near.py", "X = 1.0\n")
    repo.write("rewards/exact.py", "from near import X\n\n\ndef reward(q, a, c):\n    return X\n")
    repo.write("rewards/exact.yaml", "kind: Reward\nname: exact\nfile: exact.py\n")
    before = repo.load()
    (repo.root / "rewards").rename(repo.root / "scoring")
    (repo.root / "scoring/exact.py").rename(repo.root / "scoring/strict.py")
    repo.edit("scoring/exact.yaml", "exact.py", "strict.py")
    repo.write(
        "arena.yaml",
        "name: team\nproject: maths\nroots: [datasets, scoring, manifests, experiments, deployments]\n",
    )
    after = repo.load()
    assert {a: r.fingerprint for a, r in after.resources.items()} == {
        a: r.fingerprint for a, r in before.resources.items()
    }


# Environments


def test_an_environment_is_the_files_of_its_folder(grid):
    spec = grid.load().resources[GRID].spec
    assert list(spec["files"]) == ["grid.py", "parts/cell.py"]
    assert spec["requirements"] == ["numpy>=2", "scipy"]
    assert spec["env_config"] == {"size": 4}


def test_yaml_beside_the_code_is_data_of_the_environment_unless_it_looks_like_a_resource(grid):
    grid.write("environments/grid/levels.yaml", "levels: [1, 2]\n")
    assert "levels.yaml" in grid.load().resources[GRID].spec["files"]
    grid.write("environments/grid/other.yaml", "knd: Environment\nname: other\n")
    assert grid.problems() == ["environments/grid/other.yaml:1:1 no-kind"]


def test_a_comment_in_its_documents_does_not_change_an_environment(grid):
    before = grid.load().resources[GRID].fingerprint
    grid.write("environments/grid/environment.yaml", "# hello\n" + ENVIRONMENT)
    grid.write("environments/grid/env_config.yaml", "# hello\nsize: 4\n")
    grid.write("environments/grid/requirements.txt", "numpy>=2\nscipy\n")
    assert grid.load().resources[GRID].fingerprint == before


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("environment.yaml", "grid:Grid", "gird:Grid", "environment.yaml:4:13 missing-entrypoint"),
        ("environment.yaml", "grid:Grid", "grid:Gird", "environment.yaml:4:13 missing-entrypoint"),
        ("environment.yaml", "source: .", "source: src", "environment.yaml:3:9 missing-file"),
        ("environment.yaml", "env_config.yaml", "env.yaml", "environment.yaml:6:9 missing-file"),
        ("environment.yaml", "requirements.txt", "reqs.txt", "environment.yaml:5:15 missing-file"),
        ("requirements.txt", "scipy", "-r other.txt", "requirements.txt:4:1 requirements-option"),
        ("env_config.yaml", "size: 4", "- 4", "env_config.yaml:1:1 not-a-mapping"),
        ("grid.py", "pass", "pass )", "grid.py:5:10 python-syntax"),
    ],
)
def test_a_faulty_environment_is_reported_at_its_place(grid, path, old, new, expected):
    grid.edit(f"environments/grid/{path}", old, new)
    assert f"environments/grid/{expected}" in grid.problems()


def test_a_link_out_of_the_repository_is_not_followed_into_an_environment(grid):
    (grid.root.parent / "secret.py").write_text("x = 1\n")
    (grid.root / "environments/grid/link.py").symlink_to(grid.root.parent / "secret.py")
    assert grid.problems() == ["environments/grid/environment.yaml:3:9 outside-repository"]


def test_an_environment_may_be_one_file_with_its_imports(grid):
    grid.edit("environments/grid/environment.yaml", "source: .", "source: grid.py")
    assert list(grid.load().resources[GRID].spec["files"]) == ["grid.py", "parts/cell.py"]


def test_an_environment_may_be_an_archive(grid):
    grid.write("environments/grid/grid.zip", b"PK")
    grid.edit("environments/grid/environment.yaml", "source: .", "source: grid.zip")
    assert grid.load().resources[GRID].spec["files"] == {"grid.zip": sha256_bytes(b"PK")}


def test_the_only_environment_there_need_not_be_named(grid):
    grid.write("environments/grid/grid.py", "import gymnasium\nclass Grid(gymnasium.Env):\n    pass\n")
    grid.edit("environments/grid/environment.yaml", "entrypoint: grid:Grid\n", "")
    assert grid.load().resources[GRID].spec["entrypoint"] == "grid:Grid"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class A(Env): ...\nclass B(Env): ...\n", "2 environments are in environments/grid: grid:A, grid:B"),
        ("class A: ...\n", "there is no environment in environments/grid"),
    ],
)
def test_of_several_environments_or_none_one_has_to_be_named(grid, source, said):
    grid.write("environments/grid/grid.py", source)
    grid.edit("environments/grid/environment.yaml", "entrypoint: grid:Grid\n", "")
    assert grid.problems() == ["environments/grid/environment.yaml:3:9 no-entrypoint"]
    assert said in grid.messages()


def test_the_environment_of_an_archive_has_to_be_named(grid):
    grid.write("environments/grid/grid.zip", b"PK")
    grid.edit("environments/grid/environment.yaml", "source: .", "source: grid.zip")
    grid.edit("environments/grid/environment.yaml", "entrypoint: grid:Grid\n", "")
    assert grid.problems() == ["environments/grid/environment.yaml:3:9 no-entrypoint"]


def test_an_environment_for_text_is_refused_by_the_plan_until_there_is_a_room(grid):
    grid.edit("experiments/sums-grpo.yaml", "dataset: sums\nreward: exact", "environment: grid")
    experiment = grid.load().resources[Address("experiment", "sums-grpo")]
    assert experiment.refusals == ("multi-turn text environments have no room yet",)
    assert experiment.spec["inputs"]["environment"]["entrypoint"] == "grid:Grid"


def test_faults_in_files_an_entrypoint_imports_are_reported(grid):
    grid.write("environments/grid/parts/cell.py", "class Cell(:\n")
    assert grid.problems() == ["environments/grid/parts/cell.py:1:12 python-syntax"]


def test_requirements_that_are_not_text_are_refused(grid):
    grid.write("environments/grid/requirements.txt", b"\xff\xfe")
    assert "environments/grid/environment.yaml:5:15 not-utf8" in grid.problems()


def test_a_config_with_faults_is_reported_once(grid):
    grid.write("environments/grid/env_config.yaml", "a: [1\n")
    assert grid.problems() == ["environments/grid/env_config.yaml:1:4 yaml-syntax"]


def test_a_folder_is_no_file(repo):
    repo.write("datasets/data.csv/x", "")
    repo.edit("datasets/sums.yaml", "data/sums.csv", "data.csv")
    assert repo.problems() == ["datasets/sums.yaml:4:7 not-a-file"]


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    from fast import reward\nexcept ImportError:\n    reward = None\n",
        "if True:\n    reward = lambda q, a, c: 1.0\n",
        "reward: object = print\n",
        "import builtins as reward\n",
        "class reward:\n    pass\n",
    ],
)
def test_a_function_may_be_bound_in_any_way(repo, code):
    repo.write("rewards/exact.py", code)
    repo.write("rewards/exact.yaml", "kind: Reward\nname: exact\nfile: exact.py\n")
    assert REWARD in repo.load().resources


def test_code_that_python_cannot_take_in_is_a_diagnostic(repo):
    repo.write("rewards/exact.py", b"def reward(q, a, c):\n    return 1.0\n\x00\n")
    assert [problem.partition(" ")[2] for problem in repo.problems()] == ["python-syntax"]


def test_deeply_nested_code_is_a_diagnostic_not_a_crash(repo):
    repo.write("rewards/exact.py", "x = " + "-" * 100_000 + "1\n")
    assert [problem.partition(" ")[2] for problem in repo.problems()] == ["python-syntax"]


# Secrets


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("experiments/x.yaml", "kind: Project\nname: x\ndescription: sk-proj-{0}\n", "experiments/x.yaml:3:14"),
        ("rewards/exact.py", "KEY = 'hf_{0}'\ndef reward(q, a, c):\n    return 1.0\n", "rewards/exact.py:1:8"),
        ("datasets/data/sums.csv", "question,answer,AKIA{1}\n1,2,3\n", "datasets/data/sums.csv:1:17"),
        ("manifests/grpo.yaml", "# arena_pat_{0}\n", "manifests/grpo.yaml:1:3"),
        ("rewards/exact.py", "K = '''-----BEGIN RSA PRIVATE KEY-----'''\ndef reward(q, a, c):\n    return 1.0\n", "rewards/exact.py:1:8"),
    ],
)  # fmt: skip
def test_a_literal_secret_is_refused_without_repeating_it(repo, path, text, expected):
    value = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    repo.write(path, text.format(value, value[:16].upper()))
    assert f"{expected} secret-literal" in repo.problems()
    assert value not in repo.messages()
    assert value[:16].upper() not in repo.messages()


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("experiments/x.yaml", "kind: Project\nname: x\ndescription: ${secret:KEY}\n", "experiments/x.yaml:3:14"),
        ("manifests/grpo.yaml", "environment: {name: 'see ${secret:KEY}'}\n", "manifests/grpo.yaml:1:21"),
    ],
)  # fmt: skip
def test_a_secret_that_nobody_would_fill_in_is_refused(repo, path, text, expected):
    repo.write(path, text)
    assert f"{expected} secret-reference" in repo.problems()


def test_a_reward_names_its_secrets(repo):
    repo.write(
        "rewards/exact.yaml", "kind: Reward\nname: exact\nfile: exact.py\nsecrets: ['${secret:KEY}']\n"
    )
    found = repo.load().resources[Address.parse("reward/exact")].spec
    assert found["secrets"] == ["KEY"]


@pytest.mark.parametrize("word", ["task-list-of-the-long-names-1234567890", "risk-" + "a1" * 20, "sk-short"])
def test_ordinary_words_are_no_secrets(repo, word):
    repo.write("experiments/project.yaml", f"kind: Project\nname: maths\ndescription: {word}\n")
    assert len(repo.load().resources) == 5
