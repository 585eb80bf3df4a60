"""Lines that are longer than a terminal is wide."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import small

from arena_gitops.app import World, plan
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.report import text
from arena_gitops.report.wrapping import HANG, rows

ANSI = re.compile(r"\x1b\[\d*m")


def broken(line, width):
    return [" " * before + line[start:end] for start, end, before in rows(line, width)]


def test_a_long_line_goes_on_further_in():
    line = "      nothing is spent on it again by itself: change what it trains, raise its budget, or ask with --rerun"
    assert broken(line, 60) == [
        "      nothing is spent on it again by itself: change what it",
        "          trains, raise its budget, or ask with --rerun",
    ]


@given(st.lists(st.text("ab", min_size=1, max_size=70), max_size=12), st.integers(0, 10), st.integers(40, 90))
@settings(max_examples=200, deadline=None)
def test_no_word_is_lost_or_broken_and_no_row_is_too_long_without_need(words, indent, width):
    line = " " * indent + " ".join(words)
    made = broken(line, width)
    assert " ".join(made).split() == line.split()
    for row in made:
        assert len(row) <= width or len(row.split()) == 1
    assert all(row.startswith(" " * min(indent + HANG, width // 2)) for row in made[1:])


def test_a_plan_on_a_terminal_fits_into_it_and_says_the_same():
    planned = plan(World(MemoryPlatform()), small().state(), target="prod")
    whole, fitted = text.render(planned), text.render(planned, width=72)
    assert fitted.split() == whole.split()
    assert max(map(len, fitted.splitlines())) <= 72 or "sha256:" in max(fitted.splitlines(), key=len)
    assert ANSI.sub("", text.render(planned, colour=True, width=72)) == fitted
