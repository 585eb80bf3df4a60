"""Rows that are longer than the context, counted with the model's own tokenizer before a run."""

from __future__ import annotations

import pytest

from arena_gitops.spec.job import DatasetCategory
from arena_gitops.spec.wire import CheckRequest
from arena_runner.checks.lengths import Lengths, tokenizer_file

ROW = {"question": "How many are there?", "answer": "six"}


@pytest.fixture
def seen(tiny_model_dir):
    """What is said of rows, for a context of so many tokens."""

    def see(rows, *, category=DatasetCategory.REASONING, room=16, context=64, model=None, **more):
        manifest = {
            "network": {
                "pretrained_model_name_or_path": model or tiny_model_dir.name,
                "max_context_length": context,
            },
            "algorithm": {"name": "GRPO", "max_output_tokens": room},
            **more,
        }
        request = CheckRequest.model_validate({"address": "experiment/e", "manifest": manifest, "inputs": {}})
        lengths = Lengths(request, tiny_model_dir.parent)
        for row in rows:
            lengths.see(category, row)
        return lengths.verdict("dataset/d")

    return see


def test_rows_that_fit_are_told_with_the_longest(seen):
    told = seen([ROW] * 3)
    assert told.status == "pass"
    assert told.message.startswith("3 rows fit max_context_length 64 with 16 tokens kept free: ")


@pytest.mark.parametrize(("long", "status"), [(1, "pass"), (3, "warn"), (20, "fail")])
def test_rows_that_do_not_fit_are_a_share_a_warning_or_a_failure(seen, long, status):
    row = {**ROW, "question": "why " * 200}
    told = seen([row] * long + [ROW] * (20 - long))
    assert told.status == status
    assert told.message.startswith(f"{long} of 20 rows ({long / 20:.1%}) do not fit ")


def test_the_prompt_template_counts_and_so_does_what_is_imitated(seen):
    assert seen([ROW]).status == "pass"
    assert seen([ROW], environment={"prompt_template": {"user_1": "because " * 100}}).status == "fail"
    pair = {"prompt": "Why?", "target": "because " * 100}
    assert seen([pair], category=DatasetCategory.SFT).status == "fail"


def test_a_model_that_is_not_here_is_not_fetched_and_said_to_be_away(seen, tmp_path):
    told = seen([ROW], model="nobody/nothing-like-it")
    assert (told.status, "not measured" in told.message) == ("pass", True)
    assert tokenizer_file(str(tmp_path), None) is None


def test_without_a_context_length_there_is_nothing_to_say(seen):
    assert seen([ROW], context=0) is None
