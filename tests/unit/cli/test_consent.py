"""Nothing is changed without consent, and a plan that was approved is the plan that is applied."""

from __future__ import annotations

import json

import click
import pytest

from arena_gitops.cli.duration import Duration
from arena_gitops.cli.main import run


@pytest.mark.parametrize("args", [[], ["--json"], ["--wait", "complete"]], ids=" ".join)
def test_without_a_terminal_and_without_consent_it_is_64(args, capsys):
    assert run(["apply", *args]) == 64
    assert "--yes, a plan FILE, or --expect-plan" in capsys.readouterr().err


def test_a_json_error_is_one_document(capsys):
    run(["apply", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["exit_code"]) == ("arena.error", 64)


def test_a_file_that_is_no_plan_is_refused(tmp_path, capsys):
    (tmp_path / "plan.json").write_text("{}")
    assert run(["apply", str(tmp_path / "plan.json")]) == 64
    assert "is no plan of this version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("1.5", 1.5), ("90s", 90), ("15m", 900), ("2h30m", 9000), ("1d", 86400)]
)
def test_durations_are_read_as_people_type_them(text, seconds):
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "m5", "-3s"])
def test_other_durations_are_refused_with_what_was_expected(text):
    with pytest.raises(click.UsageError, match="expected seconds, or 90s, 15m, 2h30m"):
        Duration().convert(text, None, None)
