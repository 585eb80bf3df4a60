"""`/login` and `/logout`: a browser's session in exchange for a token. Other pages send people here and get them back."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from arena_runner.server import browser
from arena_runner.server.api.door import TheWorld
from arena_runner.server.api.pages import page
from arena_runner.server.refusals import RefusedError
from arena_runner.server.world import World

FORM_COOKIE = "arena_form"
"""Ties the login form to the browser it was sent to, so that no other page can log somebody in unnoticed."""

TEXT_LIMIT = 4096

router = APIRouter(tags=["pages"], include_in_schema=False)

Text = Annotated[str, Form(max_length=TEXT_LIMIT)]
NextField = Annotated[str, Form(alias="next", max_length=TEXT_LIMIT)]
NextQuery = Annotated[str, Query(alias="next", max_length=TEXT_LIMIT)]


def to_login(request: Request) -> Response:
    """Send a browser to the login page, and back here afterwards."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?{urlencode({'next': here})}", status_code=303)


@router.get("/login")
def show(request: Request, world: TheWorld, wanted: NextQuery = "") -> Response:
    """The form, or who is logged in."""
    goal = browser.local_path(wanted)
    try:
        caller = browser.session(world, request)
    except RefusedError:
        return _form(request, goal)
    if goal != "/login":
        return RedirectResponse(goal, status_code=303)
    links = [("/docs", "The API")]
    if world.links.mlflow:
        links.insert(0, ("/mlflow/", "MLflow"))
    return page("account", caller=caller, links=links, csrf=browser.csrf_token(world, request))


@router.post("/login")
def log_in(request: Request, world: TheWorld, token: Text, csrf: Text, wanted: NextField = "") -> Response:
    """Exchange the token for a cookie, and go back to where the browser came from."""
    goal = browser.local_path(wanted)
    if not _form_is_ours(request, csrf):
        return _form(request, goal, "The form has expired. Try again.", 403)
    try:
        cookie = browser.log_in(world, token.strip())
    except RefusedError as problem:
        return _form(request, goal, problem.message[:1].upper() + problem.message[1:] + ".", problem.status)
    answer = RedirectResponse(goal, status_code=303)
    browser.set_cookie(request, answer, cookie)
    answer.delete_cookie(FORM_COOKIE)
    return answer


@router.post("/logout")
def log_out(request: Request, world: TheWorld, csrf: Text) -> Response:
    """End the session."""
    if browser.COOKIE in request.cookies:
        _end(world, request, csrf)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(browser.COOKIE)
    return answer


def _end(world: World, request: Request, csrf: str) -> None:
    browser.check_csrf(world, request, csrf)
    browser.log_out(world, request)


def _form(request: Request, goal: str, problem: str = "", status: int = 200) -> Response:
    proof = secrets.token_urlsafe(24)
    answer = page("login", status=status, problem=problem, csrf=proof, next=goal)
    answer.set_cookie(
        FORM_COOKIE,
        proof,
        max_age=3600,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def _form_is_ours(request: Request, sent: str) -> bool:
    kept = request.cookies.get(FORM_COOKIE, "")
    return bool(kept) and hmac.compare_digest(kept.encode(), sent.encode())
