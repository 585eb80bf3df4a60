"""What is wrong is told to the client in one text: no lists, no square brackets, no address of ours, no 500.

The published client takes brackets for markup (`[/x]` crashes it), shows a list as raw JSON and hides a message
that holds an internal address. Every route is asked for nonsense in every way.
"""

from __future__ import annotations

import json
import re

import pytest
from archives import tar_gz
from arena_asks import CSV, MANIFEST, P, make_dataset, submit

from arena_runner.server.app import create_app

pytestmark = pytest.mark.one_database

HOSTILE = "[/red]x[bold]"
FIELDS = (
    "name",
    "version",
    "new_version_name",
    "experiment_name",
    "checkpoint",
    "memoryScope",
    "project",
    "model_name",
    "manifest",
    "resource_id",
    "entrypoint",
    "algorithm",
    "description",
    "search",
    "metric",
    "field",
    "experimentName",
    "projectName",
    "username",
    "session_id",
    "prompt",
)
INTERNAL = re.compile(r"https?://[a-zA-Z0-9_-]+(?::\d+)?/api/v\d+/\S*", re.ASCII)
"""As the client looks for it."""


def routes():
    """Every route of the client's API that takes a request, by method and path."""
    paths = create_app(None).openapi()["paths"]
    return sorted(
        (method.upper(), path)
        for path, methods in paths.items()
        if path.startswith(("/api/cli/v1", "/api/users"))
        for method in methods
    )


BODIES = {
    "nothing": {},
    "an empty object": {"json": {}},
    "a list": {"json": [HOSTILE]},
    "hostile texts": {"json": dict.fromkeys(FIELDS, HOSTILE)},
    "hostile values": {"json": {name: [{HOSTILE: [HOSTILE]}] for name in FIELDS}},
    "broken JSON": {"content": b'{"[/red]": [', "headers": {"Content-Type": "application/json"}},
    "a form": {
        "data": dict.fromkeys(FIELDS, HOSTILE),
        "files": {"file": (f"{HOSTILE}.csv", b"[", "text/csv")},
    },
    "a broken form": {"content": b"--x", "headers": {"Content-Type": "multipart/form-data; boundary=[x]"}},
}


def check(text):
    assert isinstance(text, str)
    assert text
    assert not {"[", "]"} & set(text)
    assert not INTERNAL.search(text)
    assert "Traceback" not in text


def check_answer(answer):
    """An error, or a stream whose last line says how it ended."""
    assert answer.status_code < 500 or answer.json()["error_code"] == "hub-unreachable", answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"].startswith("application/json")
        check(answer.json()["detail"])
    elif answer.headers.get("content-type", "").startswith("application/x-ndjson"):
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert lines[-1]["status"] in {"completed", "failed"}
        for line in lines:
            check(line["message"])


@pytest.mark.parametrize(("method", "path"), routes())
def test_nonsense_is_answered_in_words(http, method, path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for body in BODIES.values():
        for query in (
            {},
            dict.fromkeys(FIELDS, HOSTILE),
            {"preview_rows": HOSTILE, "include_arena": HOSTILE},
        ):
            if method == "GET" and body.get("files"):
                continue
            check_answer(http.request(method, path, params=query, **body))


@pytest.mark.parametrize(
    ("manifest", "reward"),
    [
        ({HOSTILE: {}}, b"x"),
        ({**MANIFEST, "algorithm": {"name": HOSTILE}}, b"x"),
        ({**MANIFEST, "environment": {"name": HOSTILE}}, b"x"),
        ({**MANIFEST, "algorithm": {**MANIFEST["algorithm"], "lr": [HOSTILE]}}, b"x"),
        (MANIFEST, b"x = [1][/red]"),
        (MANIFEST, b"def reward(question, answer, completion):\n    raise ValueError('[/red]')\n"),
        (MANIFEST, b"def reward(question, answer, completion):\n    return ['[bold]']\n"),
        (MANIFEST, b"def reward(one):\n    return 1.0\n"),
        (MANIFEST, b"def reward(question, answer, completion):\n    return float('nan')\n"),
    ],
)
def test_what_fails_in_a_submission_is_one_text(http, manifest, reward):
    make_dataset(http)

    lines = submit(http, manifest, reward)

    assert lines[-1]["status"] == "failed"
    for line in lines:
        check(line["message"])
        if line["kind"] == "check":
            result = line["detail"]["result"]
            assert not {"[", "]"} & set(json.dumps([line["detail"]["check"], result.get("error", "")])[1:-1])


@pytest.mark.parametrize(
    "content", [b"[bold],[/red]\n1,2\n", b"\xff\xfe\x00[", CSV.replace(b"answer", b"[a]")]
)
def test_what_is_wrong_with_rows_is_one_text(http, content):
    answer = make_dataset(http, files=[("file", ("[/red].csv", content, "text/csv"))])

    assert answer.status_code == 422
    check(answer.json()["detail"])


def test_what_is_wrong_with_an_archive_is_one_text(http):
    data = {"name": "e", "version": "[v1]"}
    files = {"file": ("e.tar.gz", tar_gz({"../[/red].py": "x"}), "application/gzip")}

    answer = http.post(f"{P}/environments/create-and-validate", data=data, files=files)

    assert answer.status_code == 422
    check(answer.json()["detail"])
