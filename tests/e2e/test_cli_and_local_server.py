"""The whole command line against the real embedded server; nothing is trained here."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena_gitops.cli.main import run
from arena_gitops.platforms.local import Home, find_runner, stop_local

pytestmark = pytest.mark.slow

ARENA_YAML = "name: {stack}\nproject: demo\ntargets:\n  local: {{platform: local}}\n"
PROJECT = "kind: Project\nname: demo\nllm_based: true\ndescription: {description}\n"
DATASET = """kind: Dataset
name: sums
category: reasoning
file: ../data/sums.csv
column_mapping: {question: question, answer: answer}
"""


@pytest.fixture(scope="module")
def server_home(tmp_path_factory):
    """One server for the module: starting one takes seconds."""
    home = tmp_path_factory.mktemp("server") / "home"
    yield home
    stop_local(Home(home))


@pytest.fixture
def arena(capsys):
    """Run a command line in this process: exit code, stdout, stderr."""

    def call(*args: object) -> tuple[int, str, str]:
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """What the machine that runs the tests says about servers is not meant here."""
    for name in ("CI", "ARENA_BASE_URL", "ARENA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def write(folder: Path, *, stack: str, description: str = "sums") -> None:
    for name in ("datasets", "data", "experiments"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "arena.yaml").write_text(ARENA_YAML.format(stack=stack))
    (folder / "experiments" / "project.yaml").write_text(PROJECT.format(description=description))
    (folder / "datasets" / "sums.yaml").write_text(DATASET)
    (folder / "data" / "sums.csv").write_text(
        "question,answer\n" + "".join(f"{i}+1?,{i + 1}\n" for i in range(20))
    )


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A committed repository of one project and one dataset."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, stack="team")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def at_server(monkeypatch, server_home):
    monkeypatch.setenv("ARENA_HOME", str(server_home))
    return server_home


def test_a_plan_without_a_server_is_all_create_and_starts_nothing(arena, repository, tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))
    code, out, _ = arena("plan", "--detailed-exitcode")
    assert code == 2
    assert "2 to create" in out
    assert arena("plan")[0] == 0
    assert not (tmp_path / "none").exists()
    assert not (repository / ".git" / "arena").exists()


def test_in_ci_the_local_target_is_used_on_request_only(arena, repository, tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("CI", "true")
    assert arena("plan")[0] == 64
    assert arena("plan", "--target", "local")[0] == 0


def test_applied_once_there_is_nothing_left_to_do(arena, repository, at_server, tmp_path):
    plan_file = tmp_path / "plan.json"
    assert arena("plan", "--namespace", "once", "-o", plan_file)[0] == 0
    code, out, err = arena("apply", plan_file)
    assert (code, "created" in out) == (0, True), err
    code, out, _ = arena("plan", "--namespace", "once", "--detailed-exitcode")
    assert (code, "No changes" in out) == (0, True)
    assert arena("plan", "--namespace", "once", "--expect-no-changes")[0] == 0
    journal = (repository / ".git" / "arena" / "local@once.ndjson").read_text().splitlines()
    assert len(journal) == 4  # an intent and a result for each of the two


def test_json_is_one_document_on_stdout_whatever_happens(arena, repository, at_server):
    code, out, err = arena("plan", "--namespace", "json", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "arena.plan"), err
    code, out, err = arena("apply", "--namespace", "json", "--yes", "--json", "--wait", "complete")
    document = json.loads(out)
    assert (code, document["kind"]) == (0, "arena.apply"), err
    assert [step["outcome"] for step in document["steps"]] == ["applied", "applied"]
    code, out, _ = arena("status", "--namespace", "json", "--json")
    assert {r["name"] for r in json.loads(out)["resources"]} == {"demo", "sums"}


def test_a_plan_that_no_longer_holds_is_stale(arena, repository, at_server, tmp_path):
    arena("plan", "--namespace", "stale", "-o", tmp_path / "plan.json")
    write(repository, stack="team", description="other words")
    code, _, err = arena("apply", tmp_path / "plan.json")
    assert (code, "review it again" in err) == (4, True)
    code, _, _ = arena("apply", "--namespace", "stale", "--expect-plan", "sha256:" + "0" * 64)
    assert code == 4
    assert "no runs and no deployments" in arena("status", "--namespace", "stale")[1]


def test_a_name_of_another_stack_blocks_and_names_its_owner(arena, repository, at_server):
    assert arena("apply", "--namespace", "shared", "--yes")[0] == 0
    write(repository, stack="rivals")
    code, out, err = arena("apply", "--namespace", "shared", "--yes")
    assert code == 3
    assert "team" in out + err


def test_drift_says_which_stored_files_are_gone_or_other_bytes_by_now(arena, repository, at_server):
    rows = "question,answer\nof this test alone?,1\n"
    (repository / "data" / "sums.csv").write_text(rows)
    assert arena("apply", "--namespace", "rotten", "--yes")[0] == 0
    drift = ("drift", "--namespace", "rotten", "--detailed-exitcode")
    assert arena(*drift)[:2] == (0, "No drift: local is as stack team says.\n")
    name = hashlib.sha256(rows.encode()).hexdigest()
    (blob,) = at_server.rglob(name)
    blob.chmod(0o600)
    blob.write_text(rows.replace("1", "2"))
    code, out, _ = arena(*drift)
    assert (code, f"integrity: the bytes of sha256:{name[:12]}" in out) == (2, True), out
    blob.unlink()
    code, out, _ = arena(*drift)
    assert (code, "integrity: the platform does not have" in out) == (2, True), out
    assert arena("plan", "--namespace", "rotten", "--expect-no-changes")[0] == 0


def test_every_problem_of_a_repository_is_told_with_its_place(arena, repository, at_server):
    (repository / "datasets" / "sums.yaml").write_text(
        DATASET.replace("category", "categry") + "colour: red\n"
    )
    code, out, err = arena("validate", "--json")
    document = json.loads(out)
    assert (code, document["exit_code"]) == (65, 65)
    assert {d["line"] for d in document["diagnostics"]} >= {3, 6}
    assert "datasets/sums.yaml:3:1" in err
    assert arena("plan")[0] == 65
    assert arena("apply", "--yes")[0] == 65


def test_a_killed_server_is_started_again_with_everything_it_knew(arena, repository, at_server):
    assert arena("apply", "--namespace", "killed", "--yes")[0] == 0
    server = Home(at_server).running()
    os.kill(server.pid, signal.SIGKILL)
    code, out, err = arena("plan", "--namespace", "killed")
    assert (code, "No changes" in out) == (0, True), err
    assert Home(at_server).running().pid != server.pid


def test_the_life_of_the_server_by_hand(arena, tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    assert arena("server", "status")[0] == 1
    code, url, _ = arena("server", "start")
    assert code == 0
    assert arena("server", "start")[1] == url
    code, out, _ = arena("server", "status", "--json")
    assert (code, json.loads(out)["url"]) == (0, url.strip())
    assert arena("server", "stop")[0] == 0
    assert arena("server", "status")[0] == 1


def test_two_commands_that_start_at_once_get_one_server(tmp_path):
    environ = {**os.environ, "ARENA_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "arena_gitops.cli", "server", "start"]
    both = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    urls = [child.communicate(timeout=100)[0].strip() for child in both]
    stop_local(Home(tmp_path / "home"))
    assert urls[0].startswith("http://127.0.0.1:")
    assert urls[0] == urls[1]


def on_a_terminal(answer: bytes, *args: str) -> tuple[int, str]:
    """Run a command whose three streams are a terminal, answer its question, and return what it showed."""
    command = [sys.executable, "-m", "arena_gitops.cli", *args]
    controller, terminal = pty.openpty()
    child = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 4096)
        except OSError:  # the terminal has no more users
            break
        if not piece:
            break
        shown += piece
        if b"[y/N]" in shown and answer:
            os.write(controller, answer)
            answer = b""
    os.close(controller)
    return child.wait(timeout=60), shown.decode()


def test_on_a_terminal_a_person_is_asked(repository, at_server):
    code, shown = on_a_terminal(b"n\n", "apply", "--namespace", "asked")
    assert code == 1
    assert "not applied; nothing was changed" in shown
    code, shown = on_a_terminal(b"y\n", "apply", "--namespace", "asked")
    assert code == 0
    assert "dataset/sums  created" in shown


def test_the_runner_of_this_environment_is_found():
    assert find_runner().name == "arena-runner"
    assert shutil.which(str(find_runner()))
