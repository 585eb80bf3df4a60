"""`/device`: where a person lets a program in that has asked for it, or does not."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, Response

from arena_gitops.spec.resource import Frozen
from arena_runner.server import browser
from arena_runner.server.api.door import TheWorld
from arena_runner.server.api.login import to_login
from arena_runner.server.api.pages import page
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import device_logins
from arena_runner.server.world import World

router = APIRouter(tags=["pages"], include_in_schema=False)

NOT_WAITING = "Nothing waits under this code. It may have expired: start the login again."

UserCode = Annotated[str, Query(max_length=32)]


class Decision(Frozen):
    """The form of the page."""

    csrf: str
    user_code: str
    decision: Literal["approve", "deny"]
    role: Role


@router.get("/device")
def show(request: Request, world: TheWorld, user_code: UserCode = "") -> Response:
    """Ask for the code, or say who asks and let the person decide."""
    try:
        caller = browser.session(world, request)
    except RefusedError:
        return to_login(request)
    return _question(request, world, caller, user_code) if user_code else page("code")


@router.post("/device")
def decide(request: Request, world: TheWorld, form: Annotated[Decision, Form()]) -> Response:
    """Let the program in with the chosen role, or send it away."""
    caller = browser.session(world, request)
    browser.check_csrf(world, request, form.csrf)
    approved = form.decision == "approve"
    if not device_logins.decide(world, form.user_code, caller, form.role if approved else None):
        return page("code", status=404, problem=NOT_WAITING)
    return page("decided", approved=approved, role=form.role)


def _question(request: Request, world: World, caller: Identity, user_code: str) -> Response:
    login = device_logins.waiting(world, user_code)
    if login is None:
        return page("code", status=404, problem=NOT_WAITING)
    return page(
        "device",
        code=device_logins.shown(login.user_code),
        login=login,
        caller=caller,
        roles=[role for role in browser.PEOPLE if caller.may(role)],
        proposed=Role.EDITOR if caller.may(Role.EDITOR) else Role.VIEWER,
        minutes=max(1, round((login.expires - world.clock()) / 60)),
        csrf=browser.csrf_token(world, request),
    )
