"""The scripts behind the comparisons with peers, in small: what they measure is what they say."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "runner" / "bench"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def test_a_contender_samples_learns_and_evolves_when_asked(tiny_model_dir):
    from models_made import sums
    from turns import Contender

    rows = sums(12)
    told = {
        "model": str(tiny_model_dir),
        "members": 2,
        "rank": 4,
        "targets": ["q_proj"],
        "prompts": 1,
        "completions": 3,
        "tokens": 5,
        "context": 128,
        "all_tokens": True,
        "reward": "vowels",
        "rows": {"train": rows[:8], "eval": rows[8:]},
    }
    with Contender("ours", sys.executable, "our_population.py", told) as ours:
        first = ours.ask("iterate")
        fitness = ours.ask("evaluate", rows=2)["fitness"]
        ours.ask("evolve")
        rates = ours.ask("tell")["lrs"]
    assert first["tokens"] == 2 * 3 * 5
    assert first["cpu_s"] > 0
    assert 50 < first["rss_mib"] <= first["peak_mib"]
    assert len(fitness) == len(rates) == 2


def test_what_sft_is_shown_earns_both_parts_of_the_reward():
    import courses

    course, score = courses.arithmetic(3, 20), courses.score()
    assert len(course.shown) == courses.SHOWN_ROWS
    for row in course.shown:
        number = row["target"].partition("<answer>")[2].removesuffix("</answer>")
        assert score("", f"#### {number}", row["target"]) == {"correctness": 1.0, "format": 1.0}
    asked = {row["question"] for row in course.exam}
    assert not asked & {row["question"] for row in course.practice}
    assert not asked & {row["prompt"] for row in course.shown}


def test_at_least_two_of_ten_searches_start_where_no_rate_is_good():
    import search

    assert sum(search.span_of(seed)[1] < search.GOOD for seed in range(10)) >= 2
    assert sum(search.span_of(seed)[1] >= search.GOOD for seed in range(10)) >= 2
