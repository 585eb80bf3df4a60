"""arena agent: deployments at a real server, prompts and sessions at a scripted one."""

from __future__ import annotations

import json

import pytest

TEXT = {"Content-Type": "text/plain"}
ROW = {"name": "My Sums", "id": "my-sums", "status": "serving", "experiment_name": "my-sums"}
SUBMIT = ("experiments", "submit", "grpo.yaml", "--reward-file", "reward.py")


def rows(*found: dict) -> tuple:
    return (200, json.dumps(found).encode(), {})


def prompts(scripted) -> list[dict]:
    return [json.loads(asked.body) for asked in scripted.asked if asked.path.endswith("generate_stream")]


def test_an_experiment_is_deployed_listed_and_undeployed(sums):
    sums(*SUBMIT, "--experiment-name", "Served Sums")  # its run goes on
    out, err = sums.both("agent", "deploy", "Served Sums", "--wait", "--timeout", "60s")
    assert out == "deployment Served Sums: serving step_16/m1, rule best\n"
    assert "pending" in err

    serving = sums.json("agent", "list", "--name", "Served Sums")
    assert (serving[0]["status"], serving[0]["serves"], serving[0]["id"]) == (
        "serving",
        "step_16/m1",
        "served-sums",
    )
    assert sums.json("agent", "list", "--experiment-name", "nobody") == []
    listed = sums("agent", "list")
    assert serving[0]["url"] in listed

    again = sums.json("agent", "deploy", "Served Sums", "--checkpoint", "step_8", "--memory-scope", "user")
    assert again["checkpoint"] == "step_8"
    once_more = sums.json("agent", "deploy", "Served Sums", "--checkpoint", "step_8", "--wait")
    assert (once_more["serves"], once_more["revision"]) == ("step_8/m1", 2)
    assert (
        "checkpoint 'newest' is none of"
        in sums.both("agent", "deploy", "Served Sums", "--checkpoint", "newest", expect=1)[1]
    )

    assert "add --yes" in sums.both("agent", "undeploy", "Served Sums", expect=64)[1]
    sums("agent", "undeploy", "Served Sums", "--yes")
    assert sums.json("agent", "list", "--name", "Served Sums") == []
    assert "does not exist" in sums.both("agent", "undeploy", "Served Sums", "--yes", expect=1)[1]


def test_a_rollout_that_cannot_be_served_is_a_partial_success(at_script, scripted):
    held = {**ROW, "status": "held", "settled": False, "message": "step_8 does not load"}
    scripted.will((200, json.dumps(ROW).encode(), {}), (200, json.dumps(held).encode(), {}))
    _, err = at_script.both("agent", "deploy", "My Sums", "--wait", expect=7)
    assert "arena: deployment My Sums is held: step_8 does not load" in err
    loading = {**ROW, "status": "loading", "settled": False}
    scripted.will((200, json.dumps(loading).encode(), {}))
    assert (
        "the rollout goes on"
        in at_script.both("agent", "deploy", "My Sums", "--wait", "--timeout", "0", expect=9)[1]
    )
    assert "--timeout is for" in at_script.both("agent", "deploy", "x", "--timeout", "5s", expect=64)[1]


def test_a_prompt_stands_for_itself_until_a_conversation_begins(at_script, scripted):
    scripted.will((200, b"Hello Ada.", TEXT))
    assert at_script("agent", "generate", "ada", "--prompt", "Hi") == "Hello Ada.\n"
    at_script("agent", "generate", "ada", "--prompt", "I am Ada.", "--new-session")
    answer = at_script.json("agent", "generate", "ada", "--prompt", "Who am I?")
    at_script("agent", "generate", "ada", "--prompt", "Hi", "--session-id", "other")
    at_script("agent", "generate", "bob", "--prompt", "Hi")
    at_script("agent", "sessions", "clear", "ada")
    at_script("agent", "generate", "ada", "--prompt", "Hi")

    talks = [sent.get("session_id") for sent in prompts(scripted)]
    begun = talks[1]
    assert begun
    assert talks == [None, begun, begun, "other", None, None]
    assert answer == {
        "deployment": "ada",
        "prompt": "Who am I?",
        "completion": "Hello Ada.",
        "session_id": begun,
    }
    assert (
        "not both"
        in at_script.both(
            "agent", "generate", "ada", "--prompt", "x", "--new-session", "--session-id", "y", expect=64
        )[1]
    )


def test_the_active_agent_needs_no_name(at_script, scripted):
    assert "arena agent run NAME" in at_script.both("agent", "generate", "--prompt", "Hi", expect=64)[1]
    scripted.will(rows(ROW), (200, b"4", TEXT))
    assert "active agent: My Sums (serving)" in at_script.both("agent", "run", "My Sums")[1]
    assert at_script("agent", "generate", "--prompt", "2+2?") == "4\n"
    assert scripted.asked[-1].path == "/i/my-sums/generate_stream"


def test_a_name_with_capitals_is_looked_up_when_nobody_has_it(at_script, scripted):
    missing = (404, b'{"code": "not-found", "message": "deployment My Sums does not exist"}', {})
    scripted.will(missing, rows(ROW), (200, b"4", TEXT))
    assert at_script("agent", "generate", "My Sums", "--prompt", "2+2?") == "4\n"
    assert [asked.path for asked in scripted.asked] == [
        "/i/My%20Sums/generate_stream",
        "/api/cli/v1/inference/deployments/list?name=My+Sums",
        "/i/my-sums/generate_stream",
    ]

    scripted.will(missing, (403, b'{"detail": "no", "error_code": "forbidden"}', {}))
    _, err = at_script.both("agent", "generate", "My Sums", "--prompt", "2+2?", expect=1)
    assert "deployment My Sums does not exist" in err


def test_a_deployment_is_found_by_its_experiment_or_not_at_all(at_script, scripted):
    scripted.will(rows(ROW), (200, b"4", TEXT))
    at_script("agent", "generate", "--experiment-name", "my-sums", "--refresh", "--prompt", "2+2?")
    assert scripted.asked[-1].path == "/i/my-sums/generate_stream"
    scripted.will(rows())
    assert "there is no deployment 'x'" in at_script.both("agent", "run", "x", expect=1)[1]
    scripted.will(rows(ROW, {**ROW, "name": "two"}))
    assert "several deployments fit: My Sums, two" in at_script.both("agent", "run", "x", expect=64)[1]


def test_an_error_in_the_stream_is_no_text(at_script, scripted):
    scripted.will((200, b"\n[ERROR: out of memory]", TEXT))
    out, err = at_script.both("agent", "generate", "ada", "--prompt", "Hi", expect=1)
    assert (out, "out of memory" in err) == ("", True)


def test_conversations_are_listed_read_continued_and_deleted(at_script, scripted):
    sessions = [{"session_id": "s2", "last_updated": "2026-01-02"}, {"session_id": "s1"}]
    scripted.will(rows(*sessions))
    assert at_script("agent", "sessions", "list", "ada").splitlines()[1].split() == ["s2", "2026-01-02", "-"]
    assert at_script.json("agent", "sessions", "resume", "ada") == {"deployment": "ada", "session_id": "s2"}
    assert at_script.json("agent", "sessions", "resume", "ada", "--session-id", "s1")["session_id"] == "s1"
    assert (
        "no conversation 's9'"
        in at_script.both("agent", "sessions", "resume", "ada", "--session-id", "s9", expect=64)[1]
    )
    scripted.will(rows())
    assert "no conversations" in at_script.both("agent", "sessions", "resume", "ada", expect=64)[1]

    said = {"session_id": "s1", "messages": [{"role": "user", "content": "Hi"}]}
    scripted.will((200, json.dumps(said).encode(), {}))
    assert at_script("agent", "sessions", "get", "s1", "ada") == "user: Hi\n"
    assert at_script.json("agent", "sessions", "get", "s1", "ada")["messages"] == said["messages"]

    scripted.will((204, b"", {}))
    at_script("agent", "sessions", "delete", "s1", "ada", "--yes")
    assert (scripted.asked[-1].method, scripted.asked[-1].path) == ("DELETE", "/i/ada/sessions/s1")
    scripted.will((200, b"ok", TEXT))
    at_script("agent", "generate", "ada", "--prompt", "Hi")
    assert prompts(scripted)[-1].get("session_id") is None


@pytest.mark.parametrize("options", [("agent", "sessions", "list"), ("agent", "sessions", "clear")])
def test_sessions_are_of_an_agent(at_script, options):
    assert "arena agent run NAME" in at_script.both(*options, expect=64)[1]
