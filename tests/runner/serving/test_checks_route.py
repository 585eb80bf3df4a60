"""`POST /api/v1/checks`: verdicts as they come, then a summary."""

from __future__ import annotations

import hashlib
import json

import pytest
from hub import REVISION, hub, parquet

GSM8K = {
    "main/train-00000-of-00001.parquet": parquet(
        [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(9)]
    )
}
ON_THE_HUB = {
    "address": "dataset/d",
    "category": "reasoning",
    "column_mapping": {"question": "question", "answer": "answer"},
    "hf": {"id": "openai/gsm8k", "revision": REVISION},
}


def test_checks_stream_verdicts_and_a_summary(plane):
    def blob(text):
        return plane.world.blobs.put(text.encode())

    body = {
        "address": "experiment/e",
        "manifest": {"algorithm": {"name": "GRPO"}},
        "inputs": {
            "dataset": {
                "address": "dataset/d",
                "category": "reasoning",
                "column_mapping": {"question": "q", "answer": "a"},
                "digest": blob("q,a\n2+2?,4\n3*3?,9\n"),
                "format": "csv",
            },
            "reward": {
                "address": "reward/r",
                "files": {"rewards/r.py": blob("def reward(q, a, c):\n    return len(c.split()[0])\n")},
                "entry": "rewards/r.py",
            },
        },
    }
    with plane.http("editor").stream("POST", "/api/v1/checks", json=body) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    failed = [line for line in lines if line.get("status") == "fail"]
    assert [(line["file"], line["line"]) for line in failed] == [("rewards/r.py", 2)]
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["failed"] == 1
    body["inputs"]["dataset"]["digest"] = "sha256:" + hashlib.sha256(b"absent").hexdigest()
    refused = plane.http("editor").post("/api/v1/checks", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "missing-blobs")
    assert plane.http("viewer").post("/api/v1/checks", json=body).status_code == 403


def verdicts(plane, dataset):
    body = {"address": "experiment/e", "manifest": {}, "inputs": {"dataset": dataset}}
    with plane.http("editor").stream("POST", "/api/v1/checks", json=body) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    return {line["name"]: (line["status"], line["message"]) for line in lines if "name" in line}


@pytest.fixture
def loopback_hub(plane, monkeypatch):
    with hub({"openai/gsm8k": GSM8K}) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        yield endpoint


def test_rows_of_the_hub_are_checked_like_those_of_a_file(plane, loopback_hub):
    found = verdicts(plane, ON_THE_HUB)
    assert found["columns"] == ("pass", "question ← question, answer ← answer")
    status, message = found["rows"]
    assert status == "pass"
    assert message.startswith("9 rows, 9 different")


def test_a_column_that_rows_of_the_hub_lack_is_an_error(plane, loopback_hub):
    found = verdicts(plane, {**ON_THE_HUB, "column_mapping": {"question": "question", "answer": "anwser"}})
    assert found["columns"][0] == "fail"
    assert "did you mean 'answer'?" in found["columns"][1]


def test_rows_that_the_hub_does_not_have_are_an_error(plane, loopback_hub):
    found = verdicts(plane, {**ON_THE_HUB, "hf": {"id": "openai/gsm9k"}})
    assert found["rows"][0] == "fail"
    assert "openai/gsm9k" in found["rows"][1]


def test_rows_of_a_hub_that_is_silent_are_left_to_the_worker(plane, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    status, message = verdicts(plane, ON_THE_HUB)["rows"]
    assert status == "warn"
    assert "does not answer" in message
