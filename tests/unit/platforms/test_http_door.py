"""The HTTP door against a real loopback server: what is repeated, what is refused, and as which error."""

from __future__ import annotations

import json
import socket

import pytest

from arena_gitops.errors import (
    ArenaError,
    AuthError,
    BlockedError,
    LockedError,
    PlatformError,
    PlatformRejectedError,
    PlatformUnreachableError,
    StaleError,
)
from arena_gitops.platforms.door import JSON, Door, Request, json_body

READ = Request("GET", "/x", repeatable=True)
ONCE = Request("POST", "/x", headers=JSON, body=json_body({"a": 1}))


@pytest.fixture
def door(scripted):
    door = Door(scripted.url, "secret-token", attempts=3, backoff_s=0.001)
    yield door
    door.close()


def error_body(code: str, message: str) -> bytes:
    return json.dumps({"code": code, "message": message, "details": {"k": "v"}}).encode()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "unauthenticated", AuthError),
        (403, "role", AuthError),
        (404, "not-found", PlatformRejectedError),
        (409, "owned-by-other", BlockedError),
        (409, "key-reused", PlatformRejectedError),
        (412, "stale", StaleError),
        (422, "invalid", PlatformRejectedError),
        (423, "locked", LockedError),
        (500, "internal", PlatformError),
    ],
)
def test_each_refusal_is_its_own_error_and_keeps_the_servers_words(door, scripted, status, code, expected):
    scripted.will((status, error_body(code, "the server's own words"), {}))
    with pytest.raises(ArenaError, match="the server's own words") as caught:
        door.call(READ)
    assert type(caught.value) is expected
    assert len(scripted.asked) == 1


def test_a_rejection_carries_status_code_and_details(door, scripted):
    scripted.will((422, error_body("bad-spec", "no"), {}))
    with pytest.raises(PlatformRejectedError) as caught:
        door.call(READ)
    rejection = caught.value.rejection
    assert (rejection.status, rejection.code, rejection.details) == (422, "bad-spec", {"k": "v"})


def test_a_proxys_page_is_quoted_instead_of_hidden(door, scripted):
    scripted.will((418, b"<h1>I am\n a teapot</h1>", {}))
    with pytest.raises(PlatformRejectedError, match="GET /x answered 418: <h1>I am a teapot</h1>"):
        door.call(READ)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_repeatable_call_is_sent_again_while_a_gateway_refuses(door, scripted, status):
    scripted.will((status, b"", {}), (status, b"", {}), (200, b"{}", {}))
    assert door.call(READ).status_code == 200
    assert len(scripted.asked) == 3


def test_attempts_are_bounded_and_the_last_answer_is_reported(door, scripted):
    scripted.will((503, error_body("starting", "still starting"), {}))
    with pytest.raises(PlatformError, match="still starting"):
        door.call(READ)
    assert len(scripted.asked) == 3


def test_a_call_that_may_have_had_its_effect_is_not_sent_again(door, scripted):
    scripted.will((503, b"", {}))
    with pytest.raises(PlatformError):
        door.call(ONCE)
    scripted.will(None)
    with pytest.raises(PlatformUnreachableError):
        door.call(ONCE)
    assert len(scripted.asked) == 2


def test_a_repeatable_call_survives_a_cut_connection(door, scripted):
    scripted.will(None, (200, b"{}", {}))
    assert door.call(READ).status_code == 200


def test_nobody_there_is_one_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    door = Door(url, None, attempts=2, backoff_s=0.001)
    with pytest.raises(PlatformUnreachableError, match=f"{url} cannot be reached"):
        door.call(READ)
    door.close()


def test_a_silent_server_is_given_up_on(scripted):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        door = Door(f"http://127.0.0.1:{silent.getsockname()[1]}", None, attempts=1)
        with pytest.raises(PlatformUnreachableError, match="did not answer GET /x in time"):
            door.call(Request("GET", "/x", read_timeout_s=0.1))
        door.close()


def test_every_request_has_the_token_and_an_id_of_its_own(door, scripted):
    scripted.will((200, b"{}", {}))
    door.call(READ)
    door.call(READ)
    first, second = (asked.headers for asked in scripted.asked)
    assert first["authorization"] == "Bearer secret-token"
    assert first["user-agent"].startswith("arena-gitops/")
    assert first["x-request-id"] != second["x-request-id"]


def test_a_redirect_is_refused_so_that_the_token_stays_here(door, scripted):
    scripted.will((302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}))
    with pytest.raises(PlatformError, match="answered 302"):
        door.call(READ)
    assert len(scripted.asked) == 1


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(scripted, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    scripted.will((200, b"{}", {}))
    door = Door(scripted.url, None, attempts=1)
    assert door.call(READ).is_success
    door.close()


@pytest.mark.parametrize("url", ["", "arena.example.org", "ftp://x", "http://"])
def test_what_is_no_url_is_refused_with_what_was_expected(url):
    with pytest.raises(PlatformUnreachableError, match="expected http://"):
        Door(url, None)


def test_every_attempt_of_a_call_has_the_same_number_and_another_call_another(door, scripted):
    scripted.will((503, b"", {}), (200, b"{}", {}), (200, b"{}", {}))
    door.call(Request("GET", "/x", repeatable=True))
    door.call(Request("GET", "/x", repeatable=True))
    first, again, other = (asked.headers["x-request-id"] for asked in scripted.asked)
    assert first == again != other


def test_a_failing_servers_message_has_the_number_to_look_for_in_its_log(door, scripted):
    scripted.will((500, b"Internal Server Error", {}))
    request = Request("GET", "/x", number="n-17")
    with pytest.raises(PlatformError, match=r"GET /x answered 500, request n-17\)"):
        door.call(request)


def test_the_number_is_told_once_and_not_in_refusals(door, scripted):
    scripted.will((500, error_body("internal", "its log has the reason under n-17"), {}))
    with pytest.raises(PlatformError) as caught:
        door.call(Request("GET", "/x", number="n-17"))
    assert str(caught.value).count("n-17") == 1
    scripted.will((422, error_body("bad-spec", "no"), {}))
    with pytest.raises(PlatformRejectedError) as refused:
        door.call(Request("GET", "/x", number="n-18"))
    assert "n-18" not in str(refused.value)
