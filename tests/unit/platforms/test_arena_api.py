"""The Arena API adapter: what it sends, how it reads streams, envelopes and refusals."""

from __future__ import annotations

import json
from email.parser import BytesParser
from email.policy import HTTP

import pytest

from arena_gitops.errors import (
    AuthError,
    BlockedError,
    CheckFailedError,
    PlatformError,
    PlatformRejectedError,
    StaleError,
)
from arena_gitops.platforms.arena_api import ArenaApi, Submission
from arena_gitops.platforms.door import Door
from arena_gitops.platforms.multipart import FilePart, Form

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def api(scripted):
    door = Door(scripted.url, "key", attempts=1)
    yield ArenaApi(door)
    door.close()


def lines(*found: dict) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in found)


def parts_of(asked):
    """The parts of a form, as a mail reader takes them apart."""
    head = f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + asked.body)
    return {
        (part.get_param("name", header="content-disposition"), part.get_filename()): part.get_payload(
            decode=True
        )
        for part in message.iter_parts()
    }


@pytest.mark.parametrize(
    "body",
    [b'[{"name": "a", "type": "llm"}]', b'{"ok": true, "data": [{"name": "a", "type": "llm", "new": 1}]}'],
    ids=["bare", "in an envelope"],
)
def test_answers_are_read_with_or_without_an_envelope(api, scripted, body):
    scripted.will((200, body, JSON))
    assert [(row.name, row.type) for row in api.projects()] == [("a", "llm")]


def test_what_is_not_given_is_not_asked(api, scripted):
    scripted.will((200, b"[]", JSON))
    api.deployments(experiment="My Experiment")
    assert scripted.asked[0].path == "/api/cli/v1/inference/deployments/list?experimentName=My+Experiment"


def test_a_dataset_goes_out_as_a_form_of_known_length(api, scripted, tmp_path):
    rows = tmp_path / 'odd "name".csv'
    rows.write_bytes(b"question,answer\r\n1,2\r\n")
    scripted.will((200, b'{"name": "sums", "is_ready": true}', JSON))
    told = []

    made = api.create_dataset(
        {"name": "sümmen", "config": None}, [FilePart("file", rows.name, rows)], told.append
    )

    assert made.is_ready
    asked = scripted.asked[0]
    assert parts_of(asked) == {
        ("name", None): "sümmen".encode(),
        ("file", "odd %22name%22.csv"): b"question,answer\r\n1,2\r\n",
    }
    assert told[-1] == len(asked.body) == int(asked.headers["content-length"])


def test_a_file_that_shrinks_while_it_is_sent_is_no_short_form(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"12345")
    form = Form({}, (FilePart("file", "rows.csv", path),))
    monkeypatch.setattr(FilePart, "size", property(lambda _: 9))
    with pytest.raises(StaleError, match=r"rows\.csv became shorter"):
        list(form.chunks())


def test_a_submission_without_a_reward_is_json(api, scripted):
    done = {
        "kind": "status",
        "status": "completed",
        "message": "ok",
        "detail": {"experiment_name": "e", "id": "r_1"},
    }
    scripted.will((200, lines({"kind": "status", "message": "looking"}, done), {}))
    told = []

    found = api.submit(Submission({"algorithm": {"name": "SFT"}}, experiment_name="e"), told.append)

    assert (found.experiment_name, found.run_id) == ("e", "r_1")
    assert [line.message for line in told] == ["looking", "ok"]
    body = json.loads(scripted.asked[0].body)
    assert body["manifest"] == {"algorithm": {"name": "SFT"}}
    assert (body["resource_id"], body["num_nodes"], body["project"]) == (None, None, None)


def test_a_submission_with_a_reward_is_a_form(api, scripted):
    scripted.will((200, lines({"status": "completed", "detail": {"experiment_name": "e"}}), {}))
    reward = FilePart("reward_file", "reward.py", b"def reward(): ...", "text/x-python")

    api.submit(Submission({"a": 1}, num_nodes=2, reward=reward, completion=""), lambda _: None)

    assert parts_of(scripted.asked[0]) == {
        ("num_nodes", None): b"2",
        ("manifest", None): b'{"a": 1}',
        ("completion", None): b"",
        ("reward_file", "reward.py"): b"def reward(): ...",
    }


@pytest.mark.parametrize(
    ("code", "error"),
    [("check-failed", CheckFailedError), ("internal", PlatformError), ("no-dataset", PlatformRejectedError)],
)
def test_a_stream_that_ends_in_a_failure_raises_it(api, scripted, code, error):
    failed = {"kind": "status", "status": "failed", "message": "because", "detail": {"error_code": code}}
    scripted.will((200, lines(failed), {}))
    with pytest.raises(error, match="because"):
        api.submit(Submission({}), lambda _: None)


def test_a_stream_without_a_verdict_is_never_a_success(api, scripted):
    scripted.will((200, lines({"kind": "check", "status": "running", "message": "half"}), {}))
    with pytest.raises(PlatformError, match="ended without saying how"):
        api.submit(Submission({}), lambda _: None)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "bad-token", AuthError),
        (409, "owned-by-other", BlockedError),
        (404, "not-found", PlatformRejectedError),
    ],
)
def test_refusals_of_this_api_speak_for_themselves(api, scripted, status, code, error):
    body = json.dumps({"detail": "project 'a' is no more", "error_code": code}).encode()
    scripted.will((status, body, JSON))
    with pytest.raises(error, match="project 'a' is no more"):
        api.delete_project("a")


def test_an_answer_nobody_understands_is_shown(api, scripted):
    scripted.will((200, b"<html>Sign in</html>", {}))
    with pytest.raises(PlatformError, match="does not understand: <html>Sign in"):
        api.projects()


def test_environments_are_one_row_a_version(api, scripted):
    scripted.will((200, b'{"merge": {"v1": {"validated": true, "profiled": false}, "v2": {}}}', JSON))
    found = api.environments(None, include_arena=False)
    assert [(row.name, row.version, row.validated) for row in found] == [
        ("merge", "v1", True),
        ("merge", "v2", False),
    ]


@pytest.mark.parametrize("body", [b'[{"session_id": "s"}]', b'{"sessions": [{"session_id": "s"}]}'])
def test_sessions_come_as_a_list_or_under_a_name(api, scripted, body):
    scripted.will((200, body, JSON))
    assert [row.session_id for row in api.sessions("a b")] == ["s"]
    assert scripted.asked[0].path == "/i/a%20b/sessions"
