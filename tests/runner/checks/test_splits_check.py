"""Too few rows are said before a run is paid for, and so is what is cut because there are not enough of them."""

import hashlib

import pytest

from arena_gitops.spec.job import DatasetInput, JobInputs
from arena_gitops.spec.wire import CheckRequest
from arena_runner.checks.run import run_checks
from arena_runner.data import Questions

TRAINING = {"eval_rows": 4, "eval_loop": 1, "test_rows": 8}


@pytest.fixture
def verdicts(tmp_path):
    """Check a dataset of so many different questions; the verdicts on its splits."""

    def check(count, *, copies=1, batch_size=2, **training):
        text = "".join(f"q{n},a\n" for n in range(count) for _ in range(copies))
        path = tmp_path / "rows.csv"
        path.write_text("question,answer\n" + text)
        digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        mapping = {"question": "question", "answer": "answer"}
        dataset = DatasetInput(
            address="dataset/d", category="reasoning", column_mapping=mapping, digest=digest, format="csv"
        )
        manifest = {"training": TRAINING | training, "algorithm": {"name": "X", "batch_size": batch_size}}
        request = CheckRequest(address="experiment/e", manifest=manifest, inputs=JobInputs(dataset=dataset))
        return [(r.status, r.message) for r in run_checks(request, lambda _: path) if r.name == "splits"]

    return check


def test_enough_rows_are_worth_no_word(verdicts):
    assert verdicts(40) == []


@pytest.mark.parametrize(
    ("count", "test_rows", "fails"), [(1, 8, True), (2, 8, True), (3, 8, False), (1, 0, True), (2, 0, False)]
)
def test_the_check_fails_exactly_where_the_worker_would(verdicts, count, test_rows, fails):
    found = verdicts(count, test_rows=test_rows, copies=3)
    rows = [{"question": f"q{n}", "answer": "a"} for n in range(count)]
    dealt = Questions(rows, key="question").split(eval_rows=4, test_rows=test_rows)
    assert fails == (not dealt.train or not dealt.eval)
    assert fails == any(status == "fail" for status, _ in found)
    if fails:
        least = 3 if test_rows else 2
        assert f"there must be at least {least}" in found[0][1]


def test_what_is_cut_is_said(verdicts):
    assert verdicts(10, eval_rows=64, test_rows=128, batch_size=16) == [
        ("warn", "eval_rows 64: only 2 of 10 different questions are held out for it"),
        ("warn", "test_rows 128: only 5 of 10 different questions are held out for it"),
        ("warn", "batch_size 16: only 3 questions are left to train on, so rows repeat"),
    ]
