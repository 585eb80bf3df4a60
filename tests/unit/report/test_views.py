"""Values, signs, colour, and text of strangers in Markdown."""

import json

import pytest
from stacks import small

from arena_gitops.app import World, plan
from arena_gitops.errors import Diagnostic, Severity
from arena_gitops.plan.model import Action
from arena_gitops.platforms.memory import MemoryPlatform
from arena_gitops.report import json as json_view
from arena_gitops.report import markdown, text, untrusted, words


def planned(stack=None):
    return plan(World(MemoryPlatform()), (stack or small()).state(), target="prod")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (None, "none"),
        (True, "true"),
        (999, "999"),
        (1000, "1,000"),
        (100_000, "100,000"),
        (1e-5, "1e-05"),
        ("a b", '"a b"'),
        ("sha256:" + "0" * 64, "sha256:00000000…"),
        ([1, "é"], '[1, "é"]'),
        ({"a": 1}, '{"a": 1}'),
        ("x" * 100, '"' + "x" * 58 + "…"),
    ],
)
def test_a_value_is_short_enough_for_a_line(raw, shown):
    assert words.value(raw) == shown


def test_every_action_has_a_sign_a_word_and_a_colour():
    assert set(words.MARKS) == set(words.VERBS) == set(text._COLOURS) == set(Action)


def test_colour_is_the_only_difference_on_a_terminal():
    coloured = text.render(planned(), colour=True)
    assert "\x1b[32m+\x1b[0m" in coloured
    plain = coloured
    for code in text._STYLES.values():
        plain = plain.replace(f"\x1b[{code}m", "")
    stripped = "\n".join(line.rstrip() for line in plain.replace("\x1b[0m", "").split("\n"))
    assert stripped == text.render(planned())
    assert "\x1b" not in text.render(planned())


def test_the_summary_names_every_count_in_order():
    assert words.summary_line(planned()) == (
        "Plan: 5 to create, 0 to update, 0 new versions, 0 to resume, 0 to reuse, 0 to retire, 0 to destroy. "
        "0 pending, 0 held, 0 stale, 0 blocked, 0 unchanged. Cost: unknown for 2 changes."
    )


def test_json_is_one_document():
    assert json.loads(json_view.render(planned()))["kind"] == "arena.plan"


def test_text_of_strangers_stays_text_in_markdown():
    raw = "a|b `c` <img> @all #1 [x](y) *z* &amp;\nnext"
    escaped = untrusted.escaped(raw)
    for special in ("@all", "#1", "<img>", "\n"):
        assert special not in escaped
    assert r"a\|b \`c\`" in escaped


def test_a_remark_of_a_repository_cannot_leave_its_place():
    stack = small()
    stack.notes = (Diagnostic("<!-- arena --> ```", "odd", severity=Severity.WARNING, hint="look"),)
    comment = markdown.render(planned(stack))
    assert "- warning: &lt;!-- arena --&gt;" in comment
    assert "\n````text\n" in comment
    assert "(look)" in comment


def test_an_empty_plan_needs_no_table():
    empty = planned().model_copy(update={"changes": ()})
    assert "|---" not in markdown.render(empty)
