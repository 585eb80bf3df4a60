"""Every way out of the command line: one message, one exit code, and with --json one document."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import click
import pytest

from arena_gitops import errors
from arena_gitops.cli.main import COMMANDS, LazyGroup, arena, run
from arena_gitops.cli.report_error import report
from arena_gitops.cli.session import Session

CLI = [sys.executable, "-m", "arena_gitops.cli"]


def log_of(home, text):
    (home / "logs").mkdir()
    (home / "logs" / "server.log").write_text(text)


def test_the_tables_help_lines_are_those_of_the_commands():
    context = click.Context(arena)
    commands = {name: LazyGroup.get_command(arena, context, name) for name in COMMANDS}
    documented = {name: (command.help or "").split("\n")[0] for name, command in commands.items()}
    assert documented == {name: line for name, (_, line) in COMMANDS.items()}


@pytest.mark.parametrize(
    "args",
    [
        ["plann"],
        ["--nope"],
        ["plan", "--nope"],
        ["apply", "--wait", "forever"],
        ["schema"],
        ["server", "stp"],
        ["agent", "generate", "x"],
        ["-C", "/no/such/folder", "plan"],
        [],
    ],
    ids=" ".join,
)
def test_a_usage_error_is_64_and_never_2(args, capsys):
    assert run(args) == 64
    assert capsys.readouterr().err


def test_an_unknown_command_suggests_the_nearest(capsys):
    run(["aply"])
    assert "no command 'aply'; did you mean apply?" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["plan", "--help"]], ids=" ".join)
def test_asking_for_help_is_no_error(args, capsys):
    assert run(args) == 0
    assert capsys.readouterr().out


LEAVES = [
    (errors.UsageError("m"), 64),
    (errors.BlockedError("m"), 3),
    (errors.StaleError("m"), 4),
    (errors.LockedError("m"), 5),
    (errors.AuthError("m"), 6),
    (errors.PartialApplyError("m", (errors.FailedStep("dataset/x", "no"),)), 7),
    (errors.UnexpectedChangesError("m"), 8),
    (errors.WaitTimeoutError("m"), 9),
    (errors.CheckFailedError("m"), 10),
    (errors.PlatformUnreachableError("m"), 1),
    (errors.InterruptedByUserError("m"), 130),
    (KeyboardInterrupt(), 130),
    (ZeroDivisionError("m"), 1),
]


@pytest.mark.parametrize(("error", "code"), LEAVES, ids=lambda value: type(value).__name__)
def test_each_error_has_its_code_and_is_told_once_on_stderr(error, code, capsys):
    assert report(error, Session()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("arena: ")
    assert str(error) in err
    assert "Traceback" not in err


def test_sigterm_is_143(capsys):
    session = Session()
    session.signal = signal.SIGTERM
    assert report(KeyboardInterrupt(), session) == 143


def test_the_traceback_of_a_bug_is_printed_on_request(capsys, monkeypatch):
    monkeypatch.setenv("ARENA_DEBUG", "1")
    report(ZeroDivisionError("m"), Session())
    assert "Traceback" not in capsys.readouterr().out


def test_all_diagnostics_are_told_and_counted(capsys):
    problems = [
        errors.Diagnostic(
            "unknown key `lrr`", "unknown-key", errors.Span("m.yaml", 3, 5), "did you mean `lr`?"
        ),
        errors.Diagnostic("no such file", "missing-file"),
    ]
    session = Session()
    session.json = True
    assert report(errors.RepoError(problems), session) == 65
    out, err = capsys.readouterr()
    assert "m.yaml:3:5: error: unknown key `lrr` [unknown-key]" in err
    assert "2 problems" in err
    document = json.loads(out)
    assert document["exit_code"] == 65
    assert [d["line"] for d in document["diagnostics"]] == [3, None]


def test_an_error_after_the_document_does_not_print_a_second_one(capsys):
    session = Session()
    session.json = True
    session.emit("{}")
    report(errors.CheckFailedError("m"), session)
    assert capsys.readouterr().out == "{}\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_running_command_with_its_code(tmp_path, number, code):
    log_of(tmp_path, "first line\n")
    child = subprocess.Popen(
        [*CLI, "server", "logs", "--follow"],
        env={**os.environ, "ARENA_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "first line\n"
    time.sleep(0.1)
    child.send_signal(number)
    _, err = child.communicate(timeout=20)
    assert child.returncode == code
    assert "arena: interrupted" in err


def test_a_closed_pipe_is_no_traceback(tmp_path):
    log_of(tmp_path, "a line\n" * 100_000)
    shell = f"{sys.executable} -m arena_gitops.cli server logs -n 100000 | head -1"
    answer = subprocess.run(
        ["sh", "-c", shell],
        env={**os.environ, "ARENA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (answer.stdout, answer.stderr) == ("a line\n", "")


def test_server_status_of_nothing_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "none"))
    assert run(["server", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "not running"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell, capsys):
    assert run(["completion", shell]) == 0
    assert f"_ARENA_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_the_shell_gets_its_completions():
    answer = subprocess.run(
        CLI,
        env={**os.environ, "_ARENA_COMPLETE": "bash_complete", "COMP_WORDS": "arena serv", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.split() == ["plain,server"]
