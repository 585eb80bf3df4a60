"""Groups without signal, foretold from what the base model says; and the reports of checks."""

from __future__ import annotations

import hashlib
import json
import random
from statistics import fmean

import pytest

from arena_gitops.spec.wire import CheckRequest, CheckResult
from arena_runner.checks import run_checks
from arena_runner.checks.forecast import SamplerError, in_a_process, without_signal
from arena_runner.checks.report import markdown, report

ROWS = [(f"{n} + 1?", str(n + 1)) for n in range(6)]
EXACT = b"def reward(question, answer, completion):\n    return float(completion.strip() == answer)\n"


def checked(tmp_path, sampler, source=EXACT, model="tiny", **algorithm):
    table = "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in ROWS).encode()
    blobs = {}
    for data in (table, source):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = tmp_path / digest.replace(":", "-")
        blobs[digest].write_bytes(data)
    rows, code = blobs
    mapping = {"question": "question", "answer": "answer"}
    dataset = {"address": "dataset/d", "category": "reasoning", "digest": rows, "format": "jsonl"}
    reward = {"address": "reward/r", "files": {"r.py": code}, "entry": "r.py"}
    knobs = {"name": "GRPO", "group_size": 4, "max_output_tokens": 6, **algorithm}
    body = {
        "address": "experiment/e",
        "manifest": {"algorithm": knobs, "network": {"pretrained_model_name_or_path": model}},
        "inputs": {"dataset": {**dataset, "column_mapping": mapping}, "reward": reward},
        "forecast": True,
    }
    request = CheckRequest.model_validate(body)
    found = list(run_checks(request, blobs.__getitem__, sampler=sampler))
    return request, found, [r for r in found if r.name == "forecast"]


def test_the_share_is_that_of_groups_drawn_from_the_samples():
    """Against drawing: 8 samples of each prompt, groups of 4."""
    totals, dice = [[1, 1, 0, 0, 0, 0, 0, 0], [0] * 8, [1, 0, 1, 0, 1, 0, 1, 0]], random.Random(1)
    drawn = fmean(len(set(dice.sample(one, 4))) == 1 for one in totals for _ in range(20_000))
    assert without_signal(totals, 4) == pytest.approx(drawn, abs=0.01)


def test_fewer_samples_than_a_group_has_are_taken_as_shares():
    assert without_signal([[1, 0]], 3) == pytest.approx(2 * 0.5**3)


def test_a_model_that_is_never_right_is_a_warning_with_the_way_out(tmp_path):
    _, _, (told,) = checked(tmp_path, lambda asked: [["?"] * asked.samples for _ in asked.rows])
    assert told.status == "warn"
    assert told.message.startswith(
        "100% of groups of 4 are expected to carry no signal (6 rows x 8 samples of tiny"
    )
    assert told.message.endswith("raise group_size or temperature, or let the reward pay for part of the way")


def test_a_model_that_is_right_half_of_the_time_passes(tmp_path):
    half = lambda asked: [[row["answer"], "?"] * (asked.samples // 2) for row in asked.rows]  # noqa: E731
    _, _, (told,) = checked(tmp_path, half)
    assert (told.status, told.message.partition(" of groups")[0]) == ("pass", "3%")


def test_a_model_that_cannot_be_asked_is_a_warning(tmp_path):
    def gone(_asked):
        raise SamplerError("no such model")

    _, _, (told,) = checked(tmp_path, gone)
    assert (told.status, told.message) == ("warn", "tiny could not be asked for samples: no such model")


def test_a_reward_that_cannot_run_is_not_asked_again(tmp_path):
    broken = b"def reward(question, answer, completion):\n    return [1.0]\n"
    assert checked(tmp_path, lambda _asked: pytest.fail("asked"), broken)[2] == []


def test_a_real_model_answers_in_a_process_of_its_own(tmp_path, tiny_model_dir):
    _, _, (told,) = checked(tmp_path, in_a_process(), model=str(tiny_model_dir))
    assert "6 rows x 8 samples" in told.message


def test_a_model_that_does_not_exist_says_where_it_was_looked_for(tmp_path):
    _, _, (told,) = checked(tmp_path, in_a_process(tmp_path), model="no-such-model-here")
    assert told.status == "warn"
    assert "no-such-model-here" in told.message


def test_a_report_has_every_verdict_the_worst_first_and_what_was_paid(tmp_path):
    request, found, _ = checked(tmp_path, lambda asked: [["?"] * asked.samples for _ in asked.rows])
    text = markdown(report(request, found))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    marks = [line.split(" | ")[0].strip("| ") for line in lines if line.split(" | ")[0] in {"| warn", "| ok"}]
    assert marks == sorted(marks, reverse=True)
    assert any(line.startswith("| probe 1: the gold answer |") for line in lines)


def test_a_report_is_no_place_for_strangers_markup():
    verdict = CheckResult(address="reward/r", name="import", status="fail", message="a | b <img> `x`\n## c")
    text = markdown(
        report(CheckRequest.model_validate({"address": "e", "manifest": {}, "inputs": {}}), [verdict])
    )
    assert "a \\| b &lt;img> \\`x\\` ## c |" in text
