"""What `arena ci` reads of GitHub's files and variables, and what it lets through to the runner."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from arena_gitops.cli.ci.actions import Actions
from arena_gitops.cli.ci.finding import Finding, problem
from arena_gitops.cli.main import run
from arena_gitops.errors import Diagnostic, UsageError

NAMES = ("CI", "ARENA_BASE_URL", "ARENA_API_KEY", "GITHUB_TOKEN", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
ARENA_YAML = "name: team\ntargets: {local: {platform: local}}\n"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job on a machine where nothing has been applied, in a repository of one file."""
    event = tmp_path / "event.json"
    event.write_text("{}")
    root = tmp_path / "repo"
    root.mkdir()
    (root / "arena.yaml").write_text(ARENA_YAML)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    known = {
        "GITHUB_REPOSITORY": "team/infra",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_SHA": "a" * 40,
        "ARENA_HOME": str(tmp_path / "no-server"),
    }
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(root)
    return root


def obeyed(out):
    """The lines a runner would take for commands."""
    lines, lock = [], None
    for line in out.splitlines():
        if lock is None and (found := re.fullmatch("::stop-commands::(.+)", line)):
            lock = f"::{found[1]}::"
        elif line == lock:
            lock = None
        elif lock is None and line.startswith("::"):
            lines.append(line)
    assert lock is None, "the runner would obey nothing any more"
    return lines


@pytest.mark.parametrize("command", ["plan", "apply --expect-approved-plan", "comment --from arena.yaml"])
def test_outside_of_github_every_missing_variable_is_named(command, monkeypatch, capsys, job):
    monkeypatch.delenv("GITHUB_SHA")
    monkeypatch.delenv("GITHUB_EVENT_PATH")
    assert run(["ci", *command.split()]) == 64
    assert "GITHUB_EVENT_PATH, GITHUB_SHA not set" in capsys.readouterr().err


def test_a_key_without_a_pinned_server_is_refused(job, monkeypatch, capsys):
    monkeypatch.setenv("ARENA_API_KEY", "secret-key")
    assert run(["ci", "plan", "--target", "local"]) == 64
    out, err = capsys.readouterr()
    assert "ARENA_API_KEY is set without ARENA_BASE_URL" in err
    assert "secret-key" not in out + err


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_an_event_that_is_none_is_a_usage_error(job, text, tmp_path):
    (tmp_path / "event.json").write_text(text)
    assert run(["ci", "plan", "--target", "local"]) == 64


def test_a_plan_sets_outputs_and_writes_the_page(job, monkeypatch, tmp_path, capsys):
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (job / "experiments").mkdir()
    (job / "experiments" / "p.yaml").write_text("kind: Project\nname: words\nllm_based: true\n")
    assert run(["ci", "plan", "--target", "local", "--out", str(tmp_path / "found.json")]) == 0
    outputs = (tmp_path / "GITHUB_OUTPUT").read_text()
    assert re.search(r"^plan_id<<(\w+)\nsha256:\w{64}\n\1$", outputs, re.MULTILINE)
    assert re.search(r"^changes<<(\w+)\ntrue\n\1$", outputs, re.MULTILINE)
    assert "project/words | create" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    found = Finding.read(tmp_path / "found.json")
    assert found.plan is not None
    assert (found.target, found.root, found.head) == ("local", "", "a" * 40)


def test_a_plan_in_a_folder_of_a_larger_repository_is_annotated_from_its_top(job, capsys):
    folder = job / "infra"
    (folder / "experiments").mkdir(parents=True)
    (folder / "arena.yaml").write_text(ARENA_YAML)
    (folder / "experiments" / "p.yaml").write_text("kind: Projct\nname: words\n")
    assert run(["-C", str(folder), "ci", "plan", "--target", "local"]) == 65
    (command,) = obeyed(capsys.readouterr().out)
    assert command.startswith("::error file=infra/experiments/p.yaml,line=1,")


def test_the_runner_obeys_nothing_a_repository_says(job, capsys):
    (job / "experiments").mkdir()
    evil = 'kind: Project\nname: words\nowner: "\\n::error::forged\\n::set-output name=x::y"\nlabel: 1\n'
    (job / "experiments" / "p.yaml").write_text(evil)
    assert run(["ci", "plan", "--target", "local"]) == 65
    commands = obeyed(capsys.readouterr().out)
    assert commands
    assert all(line.startswith("::error file=experiments/p.yaml,") for line in commands)


def test_views_show_what_was_found_elsewhere(job, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page"))
    found = Finding(target="prod", head="a" * 40, problems=(problem(Diagnostic("It is odd.", "odd")),))
    (tmp_path / "found.json").write_text(found.model_dump_json())
    assert run(["ci", "summary", "--from", str(tmp_path / "found.json")]) == 0
    assert "It is odd." in (tmp_path / "page").read_text()
    assert run(["ci", "annotate", "--from", str(tmp_path / "found.json")]) == 0
    assert obeyed(capsys.readouterr().out) == ["::error title=odd::It is odd."]


def test_a_comment_needs_a_pull_request(job, tmp_path, capsys):
    (tmp_path / "found.json").write_text(Finding(target="prod", head="a").model_dump_json())
    assert run(["ci", "comment", "--from", str(tmp_path / "found.json")]) == 64
    assert "expected the event pull_request or workflow_run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [["apply"], ["apply", "--expect-approved-plan", "--expect-plan", "sha256:0"]], ids=" ".join
)
def test_an_apply_needs_exactly_one_approval(args, job, capsys):
    assert run(["ci", *args]) == 64
    assert "say what was approved" in capsys.readouterr().err


def test_a_fork_whose_repository_is_gone_is_still_a_fork(job):
    side = {"sha": "a", "ref": "topic", "repo": None}
    event = {"pull_request": {"number": 3, "head": side, "base": {"sha": "b"}}}
    pull = Actions({"GITHUB_REPOSITORY": "team/infra"}, event).pull
    assert (pull.number, pull.fork) == (3, True)


@pytest.mark.parametrize("spoil", ["summary", "address", "size", "json"])
def test_a_strangers_document_is_checked_before_it_is_shown(spoil, job, tmp_path):
    path = tmp_path / "found.json"
    assert run(["ci", "plan", "--target", "local", "--out", str(path)]) == 0
    document = json.loads(path.read_text())
    if spoil == "summary":
        document["plan"]["summary"] = {}
    if spoil == "address":
        document["plan"]["changes"] = [{"address": "nonsense", "action": "create", "reason": "r"}]
    text = json.dumps(document)
    path.write_text({"size": text + " " * 9_000_000, "json": "{"}.get(spoil, text))
    with pytest.raises(UsageError):
        Finding.read(path)
