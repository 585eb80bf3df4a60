"""`arena secrets`: a value is read, never an argument, and never printed."""

from __future__ import annotations

import io
import sys

import click
import pytest

from arena_gitops.cli.imperative.secrets import secrets

VALUE = "canary-9f8e7d6c"


@pytest.fixture
def say(monkeypatch):
    """Put text on standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_value_from_standard_input_is_stored_listed_by_name_and_removed(arena, say):
    say(f"{VALUE}\n")
    out = arena.both("secrets", "set", "JUDGE_KEY")
    assert VALUE not in "".join(out)
    (row,) = arena.json("secrets", "list")
    assert (row["name"], row["readable"]) == ("JUDGE_KEY", True)
    table = arena("secrets", "list")
    assert "JUDGE_KEY" in table
    assert VALUE not in table
    assert arena.json("secrets", "rm", "JUDGE_KEY", "--yes")["deleted"] is True
    assert arena.json("secrets", "list") == []


def test_a_value_from_a_file_keeps_its_inner_lines(arena):
    (arena.folder / "key.pem").write_text("line one\nline two\n")
    assert arena.json("secrets", "set", "PEM", "--from-file", "key.pem")["name"] == "PEM"
    arena("secrets", "rm", "PEM", "--yes")


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_value_is_refused(arena, say, text):
    say(text)
    assert "this one none" in arena.both("secrets", "set", "JUDGE_KEY", "--from-stdin", expect=64)[1]


def test_no_option_takes_a_value():
    command = secrets.commands["set"]
    taken = {p.name for p in command.params if isinstance(p, click.Option) and not p.is_flag}
    assert taken == {"from_file", "target"}
    assert [p.name for p in command.params if isinstance(p, click.Argument)] == ["name"]


def test_the_servers_refusal_is_passed_on(arena, say):
    say(VALUE)
    out = "".join(arena.both("secrets", "set", "PATH", expect=1))
    assert "choose another" in out
    assert VALUE not in out


def test_removing_needs_consent(arena):
    assert "--yes" in arena.both("secrets", "rm", "JUDGE_KEY", expect=64)[1]
