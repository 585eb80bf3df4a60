"""What the published client sends, for tests that ask a world without processes."""

from __future__ import annotations

import json
from typing import Any

import httpx

P = "/api/cli/v1"
CSV = b"question,answer\nWhat is 1 + 1?,1 + 1 = 2 #### 2\n" + b"".join(
    b"What is %d + 0?,#### %d\n" % (n, n) for n in range(3, 6)
)
MAPPING = {"question": "question", "answer": "answer"}
REWARD = b"def reward(question, answer, completion):\n    return float(answer[-1] in completion)\n"
MANIFEST: dict[str, Any] = {
    "algorithm": {"name": "GRPO", "batch_size": 2, "group_size": 4},
    "environment": {"name": "sums"},
    "training": {"max_steps": 100_000, "pop_size": 1},
    "network": {"pretrained_model_name_or_path": "tiny", "max_context_length": 128},
}


def make_dataset(http: httpx.Client, name: str = "sums", files: Any = None, **fields: str) -> httpx.Response:
    """`datasets create`: of a CSV unless `files` says otherwise; always multipart, as the client has it."""
    sent = {"name": name, "category": "reasoning", "column_mapping": json.dumps(MAPPING), **fields}
    files = [("file", ("sums.csv", CSV, "text/csv"))] if files is None else files
    return http.post(f"{P}/datasets/create", data=sent, files=files or {"x": (None, "")})


def submit(
    http: httpx.Client, manifest: Any = MANIFEST, reward: bytes = REWARD, **fields: str
) -> list[dict[str, Any]]:
    """`experiments submit` with a reward file; the lines of the stream."""
    data = {"manifest": json.dumps(manifest), "experiment_name": "exp", **fields}
    answer = http.post(
        f"{P}/experiments/jobs/submit",
        data=data,
        files={"reward_file": ("reward.py", reward, "text/x-python")},
    )
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]
