"""What a reward's source tells before anything runs: what it reads, and the forms it asks for."""

from __future__ import annotations

import pytest

from arena_runner.checks.mutants import dressed, filled
from arena_runner.checks.patterns import own_forms
from arena_runner.checks.reading import facts


def own(source: str) -> list[str]:
    return list(own_forms([source], facts([source], "reward")).values())


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("return float(answer in completion)", True),
        ("return float(len(completion) < 80)", False),
        ("_ = answer\n    return 1.0 * len(completion)", False),
        ("del answer\n    return 1.0 * len(completion)", False),
        ("return score(answer, completion)", True),
        ("return score(**locals())", True),
    ],
)
def test_a_reward_that_does_not_read_the_answer_is_known_by_its_source(body, reads):
    assert facts([f"def reward(question, answer, completion):\n    {body}\n"], "reward").reads_answer == reads


def test_what_is_made_by_a_factory_may_read_anything():
    assert facts(["reward = make(0.5)\n"], "reward").reads_answer


@pytest.mark.parametrize(
    ("body", "marks"),
    [
        ("return float(question.strip().split('####')[-1] in completion)", ("####",)),
        ("return float('mod' in question)", ("mod",)),
        ("return float(answer.split('####')[-1] in completion)", ()),
    ],
)
def test_what_is_looked_for_in_the_question_is_known(body, marks):
    source = f"def reward(question, answer, completion):\n    {body}\n"
    assert facts([source], "reward").question_marks == marks


def test_a_docstring_is_no_mark():
    source = 'def reward(q, a, c):\n    "FINAL words"\n    return float("DONE" in c)\n'
    assert facts([source], "reward").marks == ("DONE",)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (r'P = r"<sql>(.*?)</sql>"', "<sql>{final}</sql>"),
        (r'P = r"^<a>\n.*?\n</a>\n<b>\n.*?\n</b>$"', "<a>\nstep by step\n</a>\n<b>\n{final}\n</b>"),
        (r'P = r"City: (.+)\nYear: (\d+)"', "City: {part0}\nYear: {part1}"),
        (r'P = r"^=> (.+)$"', "=> {part}"),
        (r"""P = r"(['\"])(\w+)\1 it is" """, "'{final}' it is"),
        ('def f(gold): return f"<x>{gold}</x>"', "<x>{final}</x>"),
        ('def f(c): return c.partition("FINAL:")', "FINAL: {final}"),
        ('def f(c): return json.loads(c)["label"]', '{{"label": "{final}"}}'),
        ('def f(key): return key == "result"', "result: {final}"),
        ('def f(root): return root.findtext("value")', "<root><value>{final}</value></root>"),
    ],
)
def test_a_form_is_read_from_what_the_source_looks_for(source, form):
    assert form in own(source + "\n")


@pytest.mark.parametrize("source", ["def reward(:", 'P = "(unclosed"', 'P = r"(?P<x>a)(?P=y)"', "P = '{}{'"])
def test_what_cannot_be_read_backwards_is_left_out(source):
    assert own(source + "\n") == []


def test_a_line_for_every_part_of_an_answer():
    assert dressed("{n}. {part}", "sun, earth, moon") == "1. sun\n2. earth\n3. moon"
    assert dressed("- {part}", "3 1 2") == "- 3\n- 1\n- 2"
    assert filled("City: {part0}\nYear: {part1}", "x") == "City: x\nYear: x"


def test_a_small_number_may_ask_for_so_many_sentences():
    assert dressed("{sentences}", "2").count(".") == 2
    assert dressed("{words}", "many") == "many"
