"""People in a browser: a session in a cookie, and proof that a form was ours.

The cookie holds a token of its own kind, made from the one that was typed in and dead with it; no script can read it
(HttpOnly), other sites' forms do not carry it (SameSite=Lax), and its signature is checked before anything is looked
up. A request that changes something must besides prove that it comes from our own page: by the token of the form, or
where a page of another program makes the requests (MLflow's), by the browser's word that the page is of our origin.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from urllib.parse import urlsplit

from itsdangerous import BadSignature, Signer
from starlette.requests import Request
from starlette.responses import Response

from arena_runner.server import auth
from arena_runner.server.auth import Identity, NewToken, Role, TokenKind
from arena_runner.server.refusals import RefusedError
from arena_runner.server.world import World

COOKIE = "arena_session"
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf"
EXTERNAL_USER = "X-External-User-Id"
"""For whom the owner of a token asks: a partner's program has one token and many users."""
SESSION_S = 12 * 3600.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
PEOPLE = (Role.VIEWER, Role.EDITOR, Role.ADMIN)
"""Roles of people; a worker has no business in a browser."""


def identify(world: World, request: Request, *, trust_own_pages: bool = False) -> Identity:
    """The caller, by bearer token or by cookie; 401 where there is neither.

    A cookie alone opens what changes nothing. Anything else also needs the form's token in `X-CSRF-Token`, or with
    `trust_own_pages` a browser that says the request comes from a page of this origin.
    """
    header = request.headers.get("authorization")
    if header is not None or COOKIE not in request.cookies:
        return auth.on_behalf(auth.authenticate(world, header), request.headers.get(EXTERNAL_USER))
    caller = session(world, request)
    if request.method not in SAFE and not (trust_own_pages and from_own_page(request)):
        check_csrf(world, request, request.headers.get(CSRF_HEADER))
    return caller


def session(world: World, request: Request) -> Identity:
    """Who the browser is logged in as; 401 when it is not."""
    return auth.identity_of(world, _text(world, request), TokenKind.BROWSER)


def log_in(world: World, text: str) -> str:
    """The cookie for the owner of a token; 401 or 403 when the token is none of a person here."""
    caller = auth.identity_of(world, text, TokenKind.BEARER).require(*PEOPLE)
    now = world.clock()
    new = auth.new_text()
    token = NewToken(caller.role, caller.subject, "browser", TokenKind.BROWSER, caller.token_id)
    with world.store.write() as session:
        auth.forget_dead(session, now)
        auth.store(session, new, replace(token, expires=now + SESSION_S), now)
    return _signer(world).sign(new).decode()


def log_out(world: World, request: Request) -> None:
    """End the session here, not only in the browser."""
    with world.store.write() as session:
        row = auth.find(session, _text(world, request), TokenKind.BROWSER, world.clock())
        if row is not None:
            session.delete(row)


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Give the session to the browser."""
    response.set_cookie(
        COOKIE,
        value,
        max_age=int(SESSION_S),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def csrf_token(world: World, request: Request) -> str:
    """What a form of this session must send back."""
    return _of_session(world, request.cookies.get(COOKIE, ""))


def check_csrf(world: World, request: Request, sent: str | None) -> None:
    """Refuse a request that other pages could have made."""
    if not hmac.compare_digest((sent or "").encode(), csrf_token(world, request).encode()):
        raise RefusedError(403, "csrf", "this form is not from your session here: load the page again")


def from_own_page(request: Request) -> bool:
    """Whether the browser says that the request comes from a page of this origin, and not of any other site."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    sent = urlsplit(request.headers.get("origin", ""))
    return bool(sent.netloc) and (sent.scheme, sent.netloc) == (request.url.scheme, request.url.netloc)


def local_path(wanted: str | None) -> str:
    """Where to go after a login: a path of this server, whatever was asked for."""
    path = wanted or ""
    odd = any(ord(c) <= 0x20 or ord(c) == 0x7F for c in path) or "\\" in path
    parts = urlsplit(path) if not odd else None
    own = parts is not None and not parts.scheme and not parts.netloc
    return path if own and path.startswith("/") and not path.startswith("//") else "/login"


def _text(world: World, request: Request) -> str:
    try:
        return _signer(world).unsign(request.cookies.get(COOKIE, "")).decode()
    except (BadSignature, UnicodeDecodeError) as problem:
        raise RefusedError(401, "no-session", "you are not logged in here: open /login") from problem


def _of_session(world: World, cookie: str) -> str:
    return hmac.new(world.keys.derive("csrf"), cookie.encode(), hashlib.sha256).hexdigest()


def _signer(world: World) -> Signer:
    return Signer(world.keys.derive("browser-session"), salt=COOKIE, digest_method=hashlib.sha256)
