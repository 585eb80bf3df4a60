"""`arena init`: what it writes is valid and plans at once; what exists is never overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena_gitops.cli.main import run
from arena_gitops.cli.starter.files import Choices, files, sample_rows
from arena_gitops.repo.load import load
from arena_gitops.spec.resource import KINDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TUTORIAL = EXAMPLES / "gsm8k-tutorial"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A machine where nothing has been applied, in a folder that no git repository is around."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "no-server"))
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_new_team_has_a_first_plan_in_two_commands(capsys):
    assert run(["init", "my-infra"]) == 0
    assert run(["-C", "my-infra", "plan"]) == 0
    assert "Plan: 5 to create" in capsys.readouterr().out


def test_every_kind_of_a_whole_change_is_there_and_without_a_remark(tmp_path):
    run(["init", "my-infra"])
    desired = load(tmp_path / "my-infra")
    assert {address.kind for address in desired.resources} == set(KINDS) - {"environment"}
    assert desired.notes == ()


def test_the_tutorials_two_files_are_taken_verbatim(tmp_path):
    manifest, reward = TUTORIAL / "manifests" / "gsm8k_grpo.yaml", TUTORIAL / "rewards" / "gsm8k.py"
    assert run(["init", "infra", "--from-manifest", str(manifest), "--reward", str(reward)]) == 0
    root = tmp_path / "infra"
    assert (root / "manifests" / "gsm8k.yaml").read_bytes() == manifest.read_bytes()
    assert (root / "rewards" / "gsm8k.py").read_bytes() == reward.read_bytes()
    assert {str(address) for address in load(root).resources} >= {"experiment/gsm8k", "dataset/gsm8k"}
    assert run(["-C", "infra", "plan"]) == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", "\ufeffID,Question,ANSWER\n1,a?,#### 1\n"),
        ("d.jsonl", '{"question": "a?", "answer": "#### 1"}\n'),
    ],
)
def test_rows_of_ones_own_are_taken_with_their_columns(name, content, tmp_path, capsys):
    Path(name).write_text(content, encoding="utf-8")
    assert run(["init", "infra", "--dataset", name]) == 0
    assert (tmp_path / "infra" / "data" / f"infra{Path(name).suffix}").read_text(encoding="utf-8") == content
    assert "made-up sample" not in capsys.readouterr().err
    load(tmp_path / "infra")


def test_a_server_gets_a_target_and_workflows(tmp_path):
    assert run(["init", "infra", "--target", "https://arena.example.org", "--github"]) == 0
    root = tmp_path / "infra"
    assert 'url: "https://arena.example.org"' in (root / "arena.yaml").read_text()
    assert (root / ".github" / "workflows" / "arena-plan.yml").is_file()
    assert load(root).default_target == "prod"


def test_the_hosted_platform_gets_a_target_and_workflows_for_it(tmp_path):
    assert run(["init", "infra", "--target", "hosted", "--github"]) == 0
    root = tmp_path / "infra"
    assert "hosted: {platform: arena_cloud}" in (root / "arena.yaml").read_text()
    assert load(root).default_target == "hosted"
    assert "--target hosted" in (root / ".github" / "workflows" / "arena-plan.yml").read_text()


@pytest.mark.parametrize(
    ("options", "answers", "stack", "target"),
    [
        ([], ["words", "rl-team", "https://arena.example.org", "y"], "words", "prod"),
        (["--target", "local"], ["", ""], "infra", "local"),
        (["--yes"], [], "infra", "local"),
    ],
    ids=["everything", "what is not said", "nothing"],
)
def test_at_a_terminal_it_asks_for_what_is_not_said(options, answers, stack, target, tmp_path):
    """A real terminal, as a person's."""
    leader, follower = os.openpty()
    command = [Path(sys.executable).parent / "arena-gitops", "init", "infra", *options]
    os.write(leader, "".join(f"{answer}\n" for answer in answers).encode())
    done = subprocess.run(command, stdin=follower, stdout=follower, stderr=follower, check=False, timeout=60)
    os.close(follower)
    said = os.read(leader, 65_536).decode()
    os.close(leader)
    assert done.returncode == 0, said
    desired = load(tmp_path / "infra")
    assert (desired.owner.stack, desired.default_target) == (stack, target)
    assert ("Where shall it run" in said) == (options == [])
    assert (tmp_path / "infra" / ".github").exists() == ("y" in answers)


def test_its_workflows_are_those_of_the_example(tmp_path):
    run(["init", "infra", "--target", "https://arena.example.org", "--github"])
    written, example = tmp_path / "infra" / ".github", EXAMPLES / "infra-repo" / ".github"
    paths = [path.relative_to(example) for path in example.rglob("*.yml")]
    assert paths
    assert sorted(paths) == sorted(path.relative_to(written) for path in written.rglob("*.yml"))
    assert [path for path in paths if (written / path).read_bytes() != (example / path).read_bytes()] == []


def test_nothing_that_exists_is_overwritten(tmp_path, capsys):
    root = tmp_path / "infra"
    root.mkdir()
    (root / "README.md").write_text("mine")
    assert run(["init", "infra"]) == 64
    assert "exist already: README.md" in capsys.readouterr().err
    assert [path.name for path in root.iterdir()] == ["README.md"]


def test_a_folder_of_a_git_repository_stays_one_of_it(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert run(["init", "infra"]) == 0
    assert not (tmp_path / "infra" / ".git").exists()


@pytest.mark.parametrize("name", ["project", "123", "1e5", "null", "true", "Überschall & Co"])
def test_any_name_makes_a_valid_repository(name, tmp_path):
    assert run(["init", "infra", "--name", name]) == 0
    assert len(load(tmp_path / "infra").resources) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "!!!"], "expected a name of letters"),
        (["--target", "prod"], "expected `local`, `hosted`, or the https://"),
        (["--github"], "add --target https://"),
        (["--dataset", "odd.csv"], "expected columns question and answer, found a, b"),
        (["--dataset", "odd.py"], "expected a .csv or .jsonl file"),
        (["--reward", "odd.py"], "expected a function called `reward`, found f, g"),
        (["--reward", "odd.csv"], "Python cannot read"),
    ],
)
def test_a_wrong_choice_is_one_clear_error_and_writes_nothing(options, message, tmp_path, capsys):
    Path("odd.csv").write_text("a,b\n1 2,3\n")
    Path("odd.py").write_text("def f(): ...\ndef g(): ...\n")
    assert run(["init", "infra", *options]) == 64
    assert message in capsys.readouterr().err
    assert not (tmp_path / "infra").exists()


def test_a_manifest_that_is_no_yaml_is_one_clear_error_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "m.yaml").write_bytes(b"\x7fELF\xff\x00")
    assert run(["init", "my-infra", "--from-manifest", "m.yaml"]) == 64
    assert "m.yaml is no manifest: m.yaml:1:1: error: this file is not UTF-8 text" in capsys.readouterr().err
    assert not (tmp_path / "my-infra").exists()


def test_the_sample_is_the_same_each_time_and_has_no_row_twice():
    rows = sample_rows().split("\nWhat")
    assert len(set(rows)) == len(rows) > 300
    assert files(Choices("a", "a", "a")) == files(Choices("a", "a", "a"))
