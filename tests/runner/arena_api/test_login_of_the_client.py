"""`arena login` of the current published client, approved by a person in a real browser."""

from __future__ import annotations

import json
import stat
import subprocess
from dataclasses import replace

import pytest
from chromium import chromium_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

RECORD = """#!/bin/sh
printf %s "$1" > "$HOME/opened.part" && mv "$HOME/opened.part" "$HOME/opened"
"""
"""Stands in for the desktop: notes what the client wants opened."""


@pytest.fixture(scope="module")
def page():
    with chromium_page(viewport={"width": 1000, "height": 900}) as page:
        yield page


@pytest.fixture(scope="module")
def client(client_of, site):
    """The client with nothing but addresses: no key, no stored login."""
    client = client_of("1.29.0")
    record = client.folder / "record-browser"
    record.write_text(RECORD)
    record.chmod(0o755)
    environment = {k: v for k, v in client.environment.items() if k != "ARENA_API_KEY"}
    return replace(
        client, environment=environment | {"ARENA_KEYCLOAK_URL": site.url, "BROWSER": f"{record} %s"}
    )


@pytest.fixture(scope="module")
def login(client, site):
    """`with login() as address:` an `arena login` that waits for somebody to open the address."""

    def start():
        (client.folder / "opened").unlink(missing_ok=True)
        process = subprocess.Popen(
            [str(client.python.parent / "arena"), "login", "--force", "--timeout", "60"],
            cwd=client.folder,
            env=client.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        opened = client.folder / "opened"
        site.until(lambda: opened.exists() or process.poll() is not None, seconds=40)
        assert process.poll() is None, process.communicate()[0]
        return process, opened.read_text()

    return start


@pytest.fixture
def logged_in(login, site, page, client):
    """What the client stored after a person had pressed Approve; the browser logs in where it has not yet."""
    process, address = login()
    page.goto(address)
    if page.get_by_label("Token").count():
        page.get_by_label("Token").fill(site.token)
        page.get_by_role("button", name="Log in").click()
    code = address.rpartition("=")[2]
    page.get_by_text(code, exact=True).wait_for()
    assert page.get_by_text("arena-cli").is_visible()
    assert page.get_by_label("What it may do").input_value() == "editor"
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("heading", name="Approved").wait_for()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return json.loads((client.folder / ".arena" / "credentials.json").read_text())


def test_the_login_opens_the_server(client, logged_in):
    assert logged_in["access_token"].count(".") == 2
    client.arena("projects", "create", "by-login", "--llm-based")
    assert "by-login" in client.arena("projects", "list").text


def test_the_client_sees_that_it_is_logged_in(client, logged_in):
    assert "still valid" in client.arena("login").text


def test_a_bearer_token_that_is_over_is_renewed_by_itself(client, logged_in):
    file = client.folder / ".arena" / "credentials.json"
    file.write_text(json.dumps({**logged_in, "access_token": "over"}))
    client.arena("projects", "list")
    assert json.loads(file.read_text())["access_token"].count(".") == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_after_a_logout_what_was_stored_opens_nothing(client, logged_in):
    file = client.folder / ".arena" / "credentials.json"
    kept = file.read_text()
    client.arena("logout")
    assert not file.exists()
    file.write_text(kept)
    assert client.arena("projects", "list", expect=None).code == 1


def test_a_person_who_did_not_ask_denies_it(client, login, logged_in, page):
    process, address = login()
    page.goto(address)
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("heading", name="Denied").wait_for()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "access_denied" in out or "denied" in out
