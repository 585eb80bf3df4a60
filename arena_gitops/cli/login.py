"""`arena login` and `arena logout`: a token for one server, from a person at a browser or from standard input."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from urllib.parse import urlsplit

import click
from pydantic import BaseModel

from arena_gitops.cli import options
from arena_gitops.cli.credentials import Credential, forget, keep, origin
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.renewing import credential_of
from arena_gitops.cli.session import Session
from arena_gitops.cli.stack import choose_anywhere
from arena_gitops.errors import PlatformError, UsageError, WaitTimeoutError
from arena_gitops.platforms.accounts import Accounts, Asked, Tokens
from arena_gitops.platforms.door import Door, is_loopback


class LoggedIn(BaseModel):
    """Where, and as whom."""

    url: str
    subject: str
    role: str
    renewed: bool
    """whether the token is renewed by itself; one from standard input is not"""


class LoggedOut(BaseModel):
    """Where, and whether there was anything to forget."""

    url: str
    was_logged_in: bool
    ended_at_server: bool
    """a token from standard input is only forgotten: it stays valid where it was made"""


@explained(
    "arena login --target https://arena.example.org",
    "arena login --target prod --token-stdin < token.txt",
    one=LoggedIn,
)
@click.command()
@options.target
@click.option(
    "--token-stdin", is_flag=True, help="Read a token of the server from standard input; needs no browser."
)
@click.option(
    "--force", is_flag=True, hidden=True, expose_value=False
)  # of the published client; ours always asks
@click.option("--no-browser", is_flag=True, help="Open nothing; print the address.")
@click.option(
    "--timeout", type=Duration(), default="10m", show_default=True, help="How long to wait for the approval."
)
@options.json
@click.pass_obj
def login(
    session: Session, *, target: str | None, token_stdin: bool, no_browser: bool, timeout: float
) -> None:
    """Log in to a server.

    The token is kept for that server alone, where only you can read it.
    """
    url = _url(session, target)
    if url is None:
        return
    if urlsplit(url).scheme == "http" and not is_loopback(urlsplit(url).hostname or ""):
        session.say(f"note: {origin(url)} is not encrypted; whoever is on the way can read the token")
    credential = _from_stdin() if token_stdin else _from_browser(session, url, no_browser, timeout)
    _greet(session, url, credential)


@explained("arena logout --target prod", one=LoggedOut)
@click.command()
@options.target
@options.json
@click.pass_obj
def logout(session: Session, target: str | None) -> None:
    """Log out of a server.

    Its token is forgotten here; a login in the browser also ends at the server.
    """
    url = _url(session, target)
    if url is None:
        return
    known = forget(url, os.environ)
    ended = (
        known is not None and known.refresh_token is not None and _ended(session, url, known.refresh_token)
    )
    where = origin(url)
    if session.json:
        document = LoggedOut(url=where, was_logged_in=known is not None, ended_at_server=ended)
        session.emit(document.model_dump_json())
    elif known is None:
        session.say(f"you were not logged in at {where}")
    else:
        session.say(
            f"logged out of {where}"
            + ("" if ended else "; the token itself stays valid until it is revoked there")
        )
    if os.environ.get("ARENA_API_KEY"):
        session.say("note: ARENA_API_KEY is set and still used where it applies")


def _url(session: Session, target: str | None) -> str | None:
    choice = choose_anywhere(target)
    if choice.url is None:
        if session.json:
            raise UsageError("the local server needs no login; name another by --target")
        session.say("the local server needs no login; name another by --target")
    return choice.url


def _from_stdin() -> Credential:
    asked = sys.stdin.isatty()
    token = click.prompt("Token", hide_input=True, err=True) if asked else sys.stdin.read()
    if not token.strip() or len(token.split()) != 1:
        raise UsageError("--token-stdin expects one token and nothing else on standard input")
    return Credential(token=str(token).strip())


def _from_browser(session: Session, url: str, no_browser: bool, timeout_s: float) -> Credential:
    door = session.using(Door(url, None))
    accounts = Accounts(door)
    asked = accounts.ask()
    address = asked.verification_uri_complete or asked.verification_uri
    session.say(f"open   {address}\nand approve only if it shows this code: {asked.user_code}")
    if not no_browser and origin(address) == origin(url):  # nothing else is opened on a server's word
        webbrowser.open(address)
    return credential_of(_wait(accounts, asked, timeout_s), time.time())


def _wait(accounts: Accounts, asked: Asked, timeout_s: float) -> Tokens:
    deadline = time.monotonic() + min(timeout_s, asked.expires_in)
    pause_s = asked.interval
    while time.monotonic() + pause_s < deadline:
        time.sleep(pause_s)
        answer = accounts.poll(asked)
        if isinstance(answer, Tokens):
            return answer
        pause_s += answer
    raise WaitTimeoutError("nobody approved the login in time; start again")


def _greet(session: Session, url: str, credential: Credential) -> None:
    """Keep the credential, once the server has said whose it is."""
    profile = Accounts(session.using(Door(url, credential.token))).profile()
    keep(url, credential, os.environ)
    document = LoggedIn(url=origin(url), renewed=credential.refresh_token is not None, **profile.model_dump())
    if session.json:
        session.emit(document.model_dump_json())
    else:
        session.say(f"logged in at {document.url} as {document.subject} ({document.role})")


def _ended(session: Session, url: str, refresh_token: str) -> bool:
    try:
        Accounts(session.using(Door(url, None, attempts=1))).log_out(refresh_token)
    except PlatformError as problem:
        session.say(
            f"the server was not told: {problem}; there the login ends by itself, or by arena-runner token revoke"
        )
        return False
    return True
