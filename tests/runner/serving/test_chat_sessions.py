"""Conversations under ids that the published client makes up."""

from __future__ import annotations

import pytest

from arena_runner.server.services import sessions
from arena_runner.server.services.sessions import Owner

GREEDY = {"temperature": 0, "max_new_tokens": 16}
MINE = Owner("main", "maths", "inference")


@pytest.fixture
def http(plane):
    plane.deploy("maths", "maths@1")
    return plane.http()


def ask(http, prompt, session="s", **more):
    body = {"prompts": [prompt], "params": GREEDY, "session_id": session, **more}
    answer = http.post("/i/maths/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["completion"]


def stream(http, prompt, session="s"):
    body = {"prompt": prompt, "params": GREEDY, "session_id": session}
    with http.stream("POST", "/i/maths/generate_stream", json=body) as got:
        return "".join(got.iter_text())


def messages(http, session="s"):
    return http.get(f"/i/maths/sessions/{session}").json()["messages"]


def test_an_unknown_id_begins_a_session_that_keeps_what_was_said(http):
    first, second = ask(http, "2 and 2"), stream(http, "3 and 3")

    assert messages(http) == [
        {"role": "user", "content": "2 and 2"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "3 and 3"},
        {"role": "assistant", "content": second},
    ]


def test_the_first_prompt_is_asked_as_without_a_session(http):
    alone = http.post("/i/maths/generate", json={"prompts": ["2 and 2"], "params": GREEDY}).json()

    assert ask(http, "2 and 2") == alone["results"][0]["completion"]


def test_a_later_prompt_continues_the_conversation(http):
    ask(http, "2 and 2")
    second = ask(http, "3 and 3")

    body = {"model": "maths", "messages": messages(http)[:3], "temperature": 0, "max_tokens": 16}
    chat = http.post("/v1/chat/completions", json=body).json()

    assert second == chat["choices"][0]["message"]["content"]


def test_a_conversation_longer_than_the_context_forgets_its_beginning(plane, http):
    for number in range(12):
        sessions.append(plane.world, MINE, "s", f"{number} " + "word " * 60, "yes " * 60)

    stream(http, "2 and 2")

    assert messages(http)[-2]["content"] == "2 and 2"


def test_sessions_are_listed_by_last_use(http):
    for session in ("a", "b", "a"):
        ask(http, "2 and 2", session)

    rows = http.get("/i/maths/sessions").json()

    assert [row["session_id"] for row in rows] == ["a", "b"]
    assert set(rows[0]) == {"session_id", "created_at", "last_updated"}


def test_a_deleted_session_is_gone(http):
    ask(http, "2 and 2")

    assert [http.delete("/i/maths/sessions/s").status_code for _ in range(2)] == [204, 404]
    assert http.get("/i/maths/sessions/s").status_code == 404


def test_nobody_sees_the_sessions_of_another(plane, http):
    ask(http, "2 and 2")

    other = {"Authorization": f"Bearer {plane.tokens['editor']}"}

    assert http.get("/i/maths/sessions", headers=other).json() == []
    assert http.get("/i/maths/sessions/s", headers=other).status_code == 404


def test_a_session_takes_one_prompt_at_a_time(http):
    body = {"prompts": ["a", "b"], "session_id": "s"}

    assert http.post("/i/maths/generate", json=body).status_code == 422


def test_with_scope_organization_all_share_a_session(plane):
    share(plane, "maths")
    plane.deploy("maths", "maths@1")
    http = plane.http()
    ask(http, "2 and 2")

    other = {"Authorization": f"Bearer {plane.tokens['editor']}"}

    assert [row["session_id"] for row in http.get("/i/maths/sessions", headers=other).json()] == ["s"]
    assert http.delete("/i/maths/sessions/s", headers=other).status_code == 204
    assert http.get("/i/maths/sessions").json() == []


def share(plane, name):
    """The deployment's resource, as `agent deploy --memory-scope organization` leaves it."""
    from arena_gitops.spec.digest import fingerprint
    from arena_gitops.spec.resource import Address
    from arena_gitops.spec.wire import DeploymentSpec, Owner, PutResource
    from arena_runner.server.services import resources

    labels = {sessions.SCOPE: sessions.SHARED}
    spec = DeploymentSpec(experiment="maths", checkpoint="best", labels=labels).model_dump(mode="json")
    body = PutResource(owner=Owner(stack="imperative"), spec=spec, fingerprint=fingerprint(spec, {}))
    resources.put(plane.world, resources.Put(Address("deployment", name), body, None))
