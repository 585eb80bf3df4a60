"""Device login at the paths of Keycloak, where the published client and our own look for it.

Form-encoded requests and OAuth's own error bodies (RFC 6749 §5.2, RFC 8628 §3.5). Any realm is the one there is; the
clients are public, so their names only tell people who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import Field

from arena_gitops.spec.resource import Frozen
from arena_runner.server.api.door import TheWorld
from arena_runner.server.services import device_logins
from arena_runner.server.services.device_logins import Granted, GrantError, GrantProblem

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}

Client = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Code = Annotated[str, Field(max_length=256)]


class Sent(Frozen, extra="ignore"):
    """A form of a client; `scope`, an empty `username` and the like are not read."""

    client_id: Client


class TokenForm(Sent):
    """What tokens are asked for with."""

    grant_type: Code
    device_code: Code = ""
    refresh_token: Code = ""


class LogoutForm(Sent):
    """Which login shall end."""

    refresh_token: Code


class _Route(APIRoute):
    """Says what is wrong with a form in OAuth's words."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as problem:
                lines = [f"{'.'.join(str(p) for p in e['loc'][1:])}: {e['msg']}" for e in problem.errors()]
                return _answer({"error": "invalid_request", "error_description": "; ".join(lines)}, 400)

        return answer


router = APIRouter(prefix="/realms/{realm}/protocol/openid-connect", tags=["login"], route_class=_Route)


@router.post("/auth/device")
def ask(request: Request, world: TheWorld, form: Annotated[Sent, Form()]) -> Response:
    """Begin a login: codes for the program and for the person."""
    address = request.client.host if request.client else "an unknown address"
    try:
        asked = device_logins.ask(world, form.client_id, address)
    except GrantError as problem:
        return _refused(problem)
    page = f"{request.base_url}device"
    complete = f"{page}?{urlencode({'user_code': asked.user_code})}"
    return _answer({**asdict(asked), "verification_uri": page, "verification_uri_complete": complete})


@router.post("/token")
def token(request: Request, world: TheWorld, form: Annotated[TokenForm, Form()]) -> Response:
    """Tokens for a device code that a person has approved, or for a refresh token."""
    issuer = str(request.base_url).rstrip("/")
    try:
        if form.grant_type == DEVICE_GRANT:
            return _tokens(device_logins.poll(world, form.device_code, issuer))
        if form.grant_type == "refresh_token":
            return _tokens(device_logins.refresh(world, form.refresh_token, form.client_id, issuer))
    except GrantError as problem:
        return _refused(problem)
    described = f"grant types here: {DEVICE_GRANT}, refresh_token"
    return _answer({"error": "unsupported_grant_type", "error_description": described}, 400)


@router.post("/logout", status_code=204)
def log_out(world: TheWorld, form: Annotated[LogoutForm, Form()]) -> Response:
    """End a login; whoever holds its refresh token may."""
    device_logins.log_out(world, form.refresh_token)
    return Response(status_code=204)


def _tokens(granted: Granted) -> Response:
    return _answer({**asdict(granted), "token_type": "Bearer", "scope": "openid profile email"})


def _refused(problem: GrantError) -> Response:
    status = 503 if problem.problem == GrantProblem.BUSY else 400
    return _answer({"error": problem.problem.value, "error_description": problem.message}, status)


def _answer(body: Mapping[str, object], status: int = 200) -> Response:
    return JSONResponse(dict(body), status_code=status, headers=NO_STORE)
