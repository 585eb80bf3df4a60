"""Annotations of a plan: each at its place, one line, within GitHub's limits."""

from hypothesis import given
from shown import HOSTILE, change, plan_of

from arena_gitops.errors import Diagnostic, Severity, Span
from arena_gitops.plan.model import (
    Action,
    Cost,
    Range,
)
from arena_gitops.report import commands


def test_an_annotation_names_its_place_and_escapes_what_would_end_it():
    note = commands.Annotation("error", "a:b,c", "50%\r\n::set-env::", "dir,x/a:b.yaml", 3, 5)
    assert note.render() == (
        "::error file=dir%2Cx/a%3Ab.yaml,line=3,col=5,title=a%3Ab%2Cc::50%25%0D%0A::set-env::"
    )


@given(HOSTILE, HOSTILE, HOSTILE)
def test_an_annotation_is_one_line_whatever_is_in_it(title, message, file):
    line = commands.Annotation("warning", title, message, file, 1, 1).render()
    assert "\n" not in line
    assert "\r" not in line
    properties = line.removeprefix("::warning ").split("::")[0]
    assert [part.split("=")[0] for part in properties.split(",")] == ["file", "line", "col", "title"]


def test_only_ten_of_each_level_are_shown_errors_first_and_the_last_counts_the_rest():
    problems = [
        Diagnostic("m", "code", Span("a.yaml", line), severity=severity)
        for severity in (Severity.NOTE, Severity.WARNING, Severity.ERROR)
        for line in range(1, 13)
    ]
    lines = commands.lines(commands.of_problems(problems))
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"] * 10
    assert [n for n, line in enumerate(lines) if line.endswith("::+3 more in the job summary")] == [9, 19, 29]


def test_a_plan_is_annotated_where_it_was_written():
    place = Range(filename="experiments/words.yaml", line=7, column=3)
    plan = plan_of(
        change(range=place, cost=Cost(max=3.0, basis="b")),
        change("deployment/d", Action.DESTROY),
        change("experiment/e", Action.BLOCKED, message="protected"),
    )
    lines = commands.lines(commands.of_plan(plan))
    assert lines[0].startswith("::error title=blocked::experiment/e: BLOCKED, protected")
    assert lines[1].startswith("::warning title=undeploys::deployment/d")
    assert lines[2].startswith(
        "::notice file=experiments/words.yaml,line=7,col=3,title=trains::experiment/words"
    )
