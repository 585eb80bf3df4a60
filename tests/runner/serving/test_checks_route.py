"""`POST /api/v1/checks`: verdicts as they come, then a summary."""

from __future__ import annotations

import hashlib
import json


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
