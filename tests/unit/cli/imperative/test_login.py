"""Logging in and out: a token for one server alone, kept where only its owner reads it, renewed by itself."""

from __future__ import annotations

import io
import json
import stat
import sys
import threading
import time
import webbrowser

import httpx
import pytest
from person import decide

from arena_gitops.cli import credentials
from arena_gitops.cli.credentials import Credential
from arena_gitops.cli.renewing import Renewing
from arena_gitops.errors import AuthError


@pytest.fixture
def opened(monkeypatch):
    """What was opened in the browser."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


@pytest.fixture
def approved(monkeypatch, server):
    """A person who approves whatever is opened."""
    monkeypatch.setattr(webbrowser, "open", lambda address: decide(address, server.token))


@pytest.fixture
def say_token(monkeypatch):
    """Put text on standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def file_of(arena):
    return arena.folder.parent / ".config" / "arena-gitops" / "credentials.json"


def stored(arena):
    return json.loads(file_of(arena).read_text())


def status(server, token):
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.url}/api/users/current", headers=headers).status_code


def test_a_login_in_the_browser_opens_the_server_until_the_logout(alone, server, approved):
    document = alone.json("login", "--target", server.url)
    assert document == {"url": server.url, "subject": "embedded", "role": "editor", "renewed": True}
    assert stat.S_IMODE(file_of(alone).stat().st_mode) == 0o600
    assert alone("user", "profile", "--target", server.url) == "embedded (editor)\n"

    kept = stored(alone)[server.url]
    file = json.loads(file_of(alone).read_text())
    file[server.url]["expires"] = time.time() + 1
    file_of(alone).write_text(json.dumps(file))
    assert alone.json("user", "profile", "--target", server.url)["role"] == "editor"
    assert stored(alone)[server.url]["expires"] > time.time() + 3000

    ended = alone.json("logout", "--target", server.url)
    assert (ended["was_logged_in"], ended["ended_at_server"]) == (True, True)
    assert stored(alone) == {}
    assert status(server, kept["token"]) == 401
    assert "arena login --target" in alone.both("user", "profile", "--target", server.url, expect=6)[1]


def test_a_denied_login_keeps_nothing(alone, server, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda address: decide(address, server.token, "deny"))
    assert "denied" in alone.both("login", "--target", server.url, expect=6)[1]
    assert not file_of(alone).exists()


def test_without_a_browser_the_address_and_the_code_are_printed(alone, server, opened):
    err = alone.both("login", "--target", server.url, "--no-browser", "--timeout", "1s", expect=9)[1]
    assert f"{server.url}/device?user_code=" in err
    assert opened == []


def test_an_address_of_another_place_is_not_opened(alone, scripted, opened):
    asked = {"device_code": "d", "user_code": "BCDF-GHJK", "expires_in": 1, "interval": 1}
    asked["verification_uri"] = "http://evil.example/device"
    scripted.will((200, json.dumps(asked).encode(), {}))
    alone("login", "--target", scripted.url, expect=9)
    assert opened == []


def test_a_token_from_standard_input_is_kept_for_its_server_alone(alone, server, scripted, say_token):
    say_token(f"{server.token}\n")
    assert alone.json("login", "--target", server.url, "--token-stdin")["role"] == "admin"
    assert alone("user", "credits", "--target", server.url).startswith("0 credits spent")

    scripted.will((200, b"[]", {}))
    assert "no token for" in alone.both("projects", "list", "--target", scripted.url, expect=6)[1]
    assert scripted.asked == []


def test_a_token_that_the_server_does_not_know_is_not_kept(alone, server, say_token):
    say_token("arena_wrong")
    out, err = alone.both("login", "--target", server.url, "--token-stdin", expect=6)
    assert "arena_wrong" not in out + err
    assert not file_of(alone).exists()


@pytest.mark.parametrize("text", ["", "two words"])
def test_something_else_than_a_token_is_refused(alone, server, say_token, text):
    say_token(text)
    assert "expects one token" in alone.both("login", "--target", server.url, "--token-stdin", expect=64)[1]


def test_the_local_server_needs_no_login(alone):
    assert "needs no login" in alone.both("login")[1]
    assert "needs no login" in alone.both("logout")[1]


def test_a_logout_without_a_login_says_so(alone, server):
    assert "were not logged in" in alone.both("logout", "--target", server.url)[1]


def test_a_logout_forgets_although_the_server_is_gone(alone):
    url = "http://127.0.0.1:9"
    credentials.keep(url, Credential(token="t", refresh_token="r"), {"HOME": str(alone.folder.parent)})
    assert "was not told" in alone.both("logout", "--target", url)[1]
    assert stored(alone) == {}


def test_credentials_of_other_servers_stay(alone):
    environ = {"HOME": str(alone.folder.parent)}
    credentials.keep("https://one.example/", Credential(token="1"), environ)
    credentials.keep("https://two.example", Credential(token="2"), environ)
    credentials.keep("https://ONE.example:443", Credential(token="3"), environ)
    assert {url: kept["token"] for url, kept in stored(alone).items()} == {
        "https://two.example": "2",
        "https://one.example": "3",
    }
    credentials.forget("https://one.example", environ)
    assert list(stored(alone)) == ["https://two.example"]


def test_many_commands_renew_a_token_once(alone, scripted):
    environ = {"HOME": str(alone.folder.parent)}
    old = Credential(token="old", refresh_token="r", expires=time.time())
    credentials.keep(scripted.url, old, environ)
    fresh = {"access_token": "new", "refresh_token": "r", "expires_in": 3600}
    scripted.will((200, json.dumps(fresh).encode(), {}))
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(Renewing(scripted.url, environ, old)())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["new"] * 8
    assert len(scripted.asked) == 1


def test_a_login_that_is_over_says_how_to_begin_anew(alone, scripted):
    environ = {"HOME": str(alone.folder.parent)}
    old = Credential(token="old", refresh_token="r", expires=time.time())
    credentials.keep(scripted.url, old, environ)
    scripted.will((400, b'{"error": "invalid_grant", "error_description": "revoked"}', {}))
    with pytest.raises(AuthError, match=r"is over .*: arena login --target"):
        Renewing(scripted.url, environ, old)()


def test_tokens_are_in_no_representation(alone):
    assert "secret-text" not in repr(Credential(token="secret-text", refresh_token="secret-text"))
