"""Presets of the GRPO family through the whole loop: what is asked, dropped, marked down and counted."""

from __future__ import annotations

import pytest

from arena_gitops.spec.algorithms.grpo import GrpoKnobs
from arena_runner.engines.base import Completion
from arena_runner.rollouts.prompts import Prompt
from arena_runner.rollouts.scored import Answer, Scored
from arena_runner.sandbox import Score

LONG = "def reward(question, answer, completion):\n    return float(len(completion))\n"
HALF = """
def reward(question, answer, completion):
    return 0.5 if int("".join(filter(str.isdigit, question))) % 2 else float(len(completion))
"""
"""Nothing to learn from every second question."""


@pytest.mark.parametrize("name", ["GSPO", "CISPO", "DAPO", "Dr.GRPO"])
def test_a_preset_trains(lab, name):
    lab.reward(LONG)
    ended = lab.run(lab.job("GRPO", algorithm={"name": name}, training={"max_steps": 32}))

    assert ended.finished.state == "completed"
    assert any(e.values.get("grad_norm", 0) > 0 for e in ended.of("metrics") if e.member is not None)


def test_dropped_groups_are_replaced_from_the_stream_and_all_count(lab):
    lab.reward(HALF)
    job = lab.job("GRPO", algorithm={"filter_zero_adv": True}, training={"max_steps": 64})
    ended = lab.run(job)
    figures = [e.values for e in ended.of("metrics") if e.member == 0]
    steps = [e.step for e in ended.of("progress") if e.member == 0]

    assert any(f["groups_dropped"] for f in figures)
    assert all(f["groups"] <= 2 + 2 * 2 for f in figures)  # a batch of two and at most two more
    assert all(f["groups"] - f["groups_dropped"] <= 2 for f in figures)
    assert steps[-1] == 4 * sum(f["groups"] for f in figures)


def test_without_the_drop_a_batch_stays_as_it_was_asked(lab):
    lab.reward(HALF)
    ended = lab.run(lab.job("GRPO", training={"max_steps": 32}))

    assert {e.values["groups"] for e in ended.of("metrics") if e.member == 0} == {2.0}


def answer(length, score):
    prompt = Prompt({"question": "?", "answer": ""}, (1, 2))
    completion = Completion((5,) * length, (-1.0,) * length, "eos")
    return Answer(prompt, completion, "", Score(total=score, components={}))


def test_an_answer_that_runs_into_the_limit_loses_up_to_one():
    knobs = GrpoKnobs(overlong_buffer=0.2, max_output_tokens=10)
    task = Scored(None, None, None, (), knobs, 64, 0)

    assert task._rewards([answer(n, 3.0) for n in (1, 8, 9, 10)]) == (3.0, 3.0, 2.5, 2.0)
    assert Scored(None, None, None, (), GrpoKnobs(), 64, 0)._rewards([answer(10, 3.0)]) == (3.0,)
