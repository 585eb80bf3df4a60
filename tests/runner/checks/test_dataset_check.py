"""What one pass over a dataset file tells before a run is paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena_gitops.spec.job import DatasetInput
from arena_runner.checks.dataset import DatasetCheck

MAPPING = {"question": "q", "answer": "a"}


@pytest.fixture
def verdicts(tmp_path: Path):
    """Check a file given as text; (name, status) → message."""

    def check(text: str, *, kind="csv", category="reasoning", mapping=None):
        path = tmp_path / "0123abcd"
        path.write_text(text)
        source = DatasetInput(
            address="dataset/d", category=category, column_mapping=mapping or MAPPING, format=kind
        )
        results = list(DatasetCheck(source, [path]).run())
        assert all(result.address == "dataset/d" for result in results)
        return {(result.name, result.status): result for result in results}

    return check


def test_a_good_file_passes_with_its_size_and_a_sample(verdicts):
    found = verdicts('q,a,more\nWhat?,This,x\nWho?,"She, of course",y\n')
    assert set(found) == {("columns", "pass"), ("rows", "pass")}
    message = found["rows", "pass"].message
    assert message == "2 rows, 2 different; the first: question: What?; answer: This"


def test_a_missing_column_is_named_with_the_nearest_one(verdicts):
    found = verdicts("question,a\nx,y\n", mapping={"question": "questoin", "answer": "a"})
    message = found["columns", "fail"].message
    assert message == (
        "the file has no column 'questoin' (question, did you mean 'question'?); its columns: question, a"
    )


def test_a_mapping_without_a_role_of_the_category_fails(verdicts):
    found = verdicts("q,a\nx,y\n", category="preference")
    assert found["columns", "fail"].message == (
        "column_mapping lacks prompt, chosen, rejected, needed by preference"
    )


def test_a_broken_line_is_named_by_its_number(verdicts):
    found = verdicts('{"q": "x", "a": "y"}\n{"q": \n', kind="jsonl")
    assert found["file", "fail"].line == 2
    assert found["file", "fail"].message.startswith("line 2: not JSON: ")


def test_a_file_that_is_no_parquet_fails(verdicts):
    assert "not a parquet file" in verdicts("hello", kind="parquet")["file", "fail"].message


def test_a_file_without_usable_rows_fails(verdicts):
    assert verdicts("q,a\n")["rows", "fail"].message == "none of the 0 rows has text in every mapped column"


def test_empties_duplicates_and_contradictions_are_counted(verdicts):
    found = verdicts("q,a\nx,1\nx, \nx,1\n x ,2\n")
    assert found["empty", "warn"].message.startswith("1 of 4 rows (25.0%) have nothing in column 'a'")
    assert "1 of 4 rows (25.0%) repeat a question with another answer" in found["duplicates", "warn"].message


def test_values_that_are_not_text_are_reported_by_type(verdicts):
    rows = [{"q": "x", "a": 3}, {"q": ["y"], "a": "z"}]
    found = verdicts("\n".join(map(json.dumps, rows)), kind="jsonl")
    assert found["types", "warn"].message.startswith("1 of 2 rows (50.0%) have a list in column 'q'")


def test_a_preference_pair_must_differ(verdicts):
    mapping = {name: name for name in ("prompt", "chosen", "rejected")}
    found = verdicts("prompt,chosen,rejected\np,x,x\nq,x,y\n", category="preference", mapping=mapping)
    assert "equal chosen and rejected" in found["preferences", "warn"].message


def test_gsm8k_as_published_passes(shared: Path):
    for path in sorted((shared / "data/gsm8k").glob("*.csv")):
        source = DatasetInput(
            address="dataset/gsm8k",
            category="reasoning",
            column_mapping={"question": "question", "answer": "answer"},
        )
        statuses = {result.status for result in DatasetCheck(source, [path]).run()}
        assert "fail" not in statuses


def test_questions_that_are_the_same_but_for_dress_may_leak_into_the_evaluation(verdicts):
    found = verdicts("q,a\nWho is it?,x\nwho is  it,y\n3+4?,7\n3*4?,12\n")
    assert found["leakage", "warn"].message.startswith("1 of 4 rows (25.0%) ask what another row asks")


@pytest.mark.parametrize(
    ("chosen", "rejected", "said"), [("yes, really", "no", "longer"), ("no", "yes, really", "shorter")]
)
def test_preferences_that_length_alone_tells_are_warned_about(verdicts, chosen, rejected, said):
    mapping = {"prompt": "p", "chosen": "c", "rejected": "r"}
    rows = "".join(f"{n},{chosen},{rejected}\n" for n in range(20))
    text = f"p,c,r\n{rows.replace(chosen, json.dumps(chosen)).replace(rejected, json.dumps(rejected))}"
    found = verdicts(text, category="preference", mapping=mapping)
    assert f"the chosen text is the {said} one in 20 of 20 rows" in found["preferences", "warn"].message


def test_few_or_mixed_preferences_say_nothing_about_length(verdicts):
    mapping = {"prompt": "p", "chosen": "c", "rejected": "r"}
    few = verdicts("p,c,r\na,long text,x\n", category="preference", mapping=mapping)
    mixed = "".join(
        f"{n},{'long text' if n % 2 else 'x'},{'x' if n % 2 else 'long text'}\n" for n in range(20)
    )
    many = verdicts(f"p,c,r\n{mixed}", category="preference", mapping=mapping)
    assert "preferences" not in {name for name, _ in [*few, *many]}
