"""explain, drift and fmt from the command line, on a machine where nothing has been applied."""

import json
import subprocess

import pytest

from arena_gitops.cli.main import run

FILES = {
    "arena.yaml": "name: team\ntargets: {local: {platform: local}}\n",
    "datasets/sums.yaml": "kind: Dataset\nname: sums\ncategory: reasoning\nfile: sums.csv\n"
    "column_mapping:\n    question: question\n    answer: answer\n",
    "datasets/sums.csv": "question,answer\n1+1?,2\n",
}


@pytest.fixture
def repo(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "no-server"))
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_explain_shows_the_side_that_is_there(repo, capsys):
    assert run(["explain", "dataset/sums"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dataset/sums (not on the platform yet)\n  + create\n")
    assert "datasets/sums.csv" in out


def test_explain_of_a_misspelt_address_is_a_usage_error(repo, capsys):
    assert run(["explain", "dataset/sum"]) == 64
    assert "did you mean 'dataset/sums'?" in capsys.readouterr().err


def test_drift_exits_with_2_only_when_asked(repo, capsys):
    assert run(["drift"]) == 0
    assert "≠ dataset/sums  not on the platform" in capsys.readouterr().out
    assert run(["drift", "--detailed-exitcode", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [entry["code"] for entry in document["entries"]] == ["missing"]


def test_fmt_check_exits_with_1_and_writes_nothing(repo, capsys):
    assert run(["fmt", "--check"]) == 1
    assert capsys.readouterr().out == "datasets/sums.yaml\n"
    assert (repo / "datasets/sums.yaml").read_text() == FILES["datasets/sums.yaml"]


def test_fmt_writes_and_is_then_content(repo, capsys):
    assert run(["fmt"]) == 0
    assert (repo / "datasets/sums.yaml").read_text().endswith("  question: question\n  answer: answer\n")
    assert run(["fmt", "--check"]) == 0


def test_a_part_can_be_planned_and_what_names_nothing_is_a_usage_error(repo, capsys):
    assert run(["plan", "--select", "dataset/sums"]) == 0
    assert ", only dataset/sums)" in capsys.readouterr().out
    assert run(["plan", "--select", "dataset/nums"]) == 64
    assert (
        "--select: there is no 'dataset/nums' here; did you mean 'dataset/sums'?" in capsys.readouterr().err
    )


def test_a_plan_file_says_itself_what_it_is_about(repo, capsys):
    assert run(["plan", "--select", "dataset/sums", "-o", "part.json"]) == 0
    assert run(["apply", "part.json", "--select", "dataset/sums"]) == 64
    assert "says itself what it is about" in capsys.readouterr().err


def test_a_plan_that_cannot_be_written_is_a_usage_error(repo, capsys):
    assert run(["plan", "-o", "no/such/folder/plan.json"]) == 64
    assert "cannot write no/such/folder/plan.json: No such file or directory" in capsys.readouterr().err


def commit(repo):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "add", "."], cwd=repo, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "x"], cwd=repo, check=True)


def test_an_offline_plan_needs_no_server_and_no_token(repo, capsys, monkeypatch):
    commit(repo)
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("ARENA_BASE_URL", "http://127.0.0.1:9")
    (repo / "datasets/sums.csv").write_text("question,answer\n1+1?,2\n2+2?,4\n")
    assert run(["plan", "--offline", "--against", "git:HEAD", "--detailed-exitcode", "-o", "plan.json"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("Plan for local, offline against git:HEAD (stack team")
    assert "± dataset/sums  new version" in out
    monkeypatch.delenv("ARENA_BASE_URL")
    assert run(["apply", "plan.json"]) == 64
    assert "was planned offline" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [["--offline"], ["--against", "git:HEAD"], ["--offline", "--against", "HEAD"]]
)
def test_an_offline_plan_says_against_what(repo, args, capsys):
    assert run(["plan", *args]) == 64
    assert "--offline --against git:REF" in capsys.readouterr().err


def test_an_unknown_commit_is_invalid_data_not_an_empty_plan(repo, capsys):
    commit(repo)
    assert run(["plan", "--offline", "--against", "git:origin/main"]) == 65
    assert "fetch-depth: 0" in capsys.readouterr().err


def test_files_and_folders_are_parts_too(repo, capsys, monkeypatch):
    (repo / "rewards").mkdir()
    (repo / "rewards" / "exact.py").write_text("def reward(question, answer, completion):\n    return 1.0\n")
    for path in ("datasets", "datasets/sums.yaml", "datasets/sums.csv"):
        assert run(["plan", path]) == 0
        assert ", only dataset/sums)" in capsys.readouterr().out
    monkeypatch.chdir(repo / "rewards")
    assert run(["plan", "exact.py", "--select", "dataset/sums"]) == 0
    assert ", only reward/exact dataset/sums)" in capsys.readouterr().out
    (repo / "rewards" / "notes.txt").write_text("x")
    assert run(["plan", "notes.txt"]) == 64
    assert "nothing is declared in notes.txt" in capsys.readouterr().err
    assert run(["plan", "nowhere"]) == 64
