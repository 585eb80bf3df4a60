"""Lists as people and programs read them, and help that says what `--json` prints."""

from __future__ import annotations

import io
import re
import sys

import click
import pytest
from pydantic import BaseModel

from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.explain import fields
from arena_gitops.cli.main import COMMANDS, SECTIONS, LazyGroup, run
from arena_gitops.cli.session import Session
from arena_gitops.platforms.arena_rows import Project

GROUPS = [name for name, (place, _) in COMMANDS.items() if ".imperative." in place]


class Row(BaseModel):
    name: str
    score: float | None = None


COLUMNS = {"NAME": lambda row: row.name, "SCORE": lambda row: row.score}
LONG = "x" * 300


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_piped_table_is_even_and_cuts_nothing_off(capsys):
    tables.show(Session(), [Row(name=LONG, score=0.5), Row(name="b\tc\nd")], COLUMNS, empty="")
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 296 + "  SCORE",
        LONG + "    0.5",
        "b c d" + " " * 295 + "      -",
    ]


def test_a_table_on_a_terminal_folds_what_is_too_long(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", "40")
    tables.show(Session(), [Row(name=LONG, score=1234.5)], COLUMNS, empty="")
    assert shown.getvalue().count("x") == 300
    assert "1,234.5" in shown.getvalue()


def test_a_digest_is_short_on_a_terminal_and_whole_everywhere_else(monkeypatch, capsys):
    digest = "sha256:" + "0123456789abcdef" * 4
    tables.show(Session(), [Row(name=digest)], COLUMNS, empty="")
    assert digest in capsys.readouterr().out
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    tables.show(Session(), [Row(name=digest)], COLUMNS, empty="")
    assert "sha256:0123456789ab " in shown.getvalue()


def test_nothing_is_a_sentence_for_people_and_an_empty_array_for_programs(capsys):
    session = Session()
    tables.show(session, [], COLUMNS, empty="nothing yet")
    assert capsys.readouterr() == ("", "nothing yet\n")
    session.json = True
    tables.show(session, [], COLUMNS, empty="nothing yet")
    assert capsys.readouterr() == ("[]\n", "")


def commands_of(group: click.Group, path: tuple[str, ...] = ()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("name", GROUPS)
def test_every_command_has_an_example_and_json(name):
    group = LazyGroup().get_command(click.Context(click.Command("arena")), name)
    assert isinstance(group, click.Group)
    for path, command in commands_of(group, (name,)):
        assert f"arena {' '.join(path)}" in (command.epilog or ""), path
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options, path
        told = " ".join(f"{command.help} {command.epilog}".split())
        assert "--json prints" in told or path == ("manifest", "schema"), path


def test_help_names_the_fields_that_are_printed(capsys):
    assert run(["projects", "list", "-h"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"--json prints an array of objects with {fields(Project)}." in out
    assert "arena projects list --json | jq" in out


def test_the_help_of_all_shows_every_command_once_under_a_heading(capsys):
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("A repository:") :] if re.match("  [a-z]", line)]
    assert listed == list(COMMANDS)
    assert [line for line in lines if line in {f"{heading}:" for heading in SECTIONS.values()}] == [
        f"{heading}:" for heading in SECTIONS.values()
    ]
