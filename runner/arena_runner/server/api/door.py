"""What every route shares: the caller, request ids, size limits, and one shape for every error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena_runner.server import browser
from arena_runner.server.api.answers import error
from arena_runner.server.api.parting import Parting
from arena_runner.server.api.requests import Requests, note_caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.world import World

BODY_LIMIT = 64 * 2**20
"""Of everything but files that are streamed to disk, which have a limit of their own."""

STREAMED = ("/api/v1/blobs/", "/api/v1/workers/hosts/", "/api/cli/v1/datasets/create")

CODES = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    422: "bad-request",
}


def world_of(request: Request) -> World:
    """The server's `World`."""
    found = request.app.state.world
    if not isinstance(found, World):
        raise TypeError("the app was made without a World")
    return found


TheWorld = Annotated[World, Depends(world_of)]


def identify(request: Request, *, trust_own_pages: bool = False) -> Identity:
    """Who calls, by bearer token or by a browser's session; `browser.identify` has the rules."""
    found = browser.identify(world_of(request), request, trust_own_pages=trust_own_pages)
    note_caller(request.scope, found.subject)
    return found


def caller(*roles: Role) -> Any:
    """A dependency: the caller, who must have one of the roles."""
    return Depends(RoleCheck(roles))


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """Lets callers in who have one of the roles; a test reads them off every route."""

    roles: tuple[Role, ...]

    def __call__(self, request: Request) -> Identity:
        """The caller."""
        return identify(request).require(*self.roles)


def etag_header(request: Request, name: str) -> str | None:
    """An entity tag as people write it: with or without quotes, weak or not."""
    value = request.headers.get(name)
    return value.strip().removeprefix("W/").strip('"') if value else None


def install(app: FastAPI) -> None:
    """Give an app the error handlers and the middleware."""

    @app.exception_handler(RefusedError)
    def refused(_request: Request, problem: RefusedError) -> Response:
        after = problem.retry_after_s
        return error(problem.status, problem.code, problem.message, problem.details, retry_after_s=after)

    @app.exception_handler(HTTPException)
    def http(request: Request, problem: HTTPException) -> Response:
        code = CODES.get(problem.status_code, f"http-{problem.status_code}")
        return error(problem.status_code, code, f"{request.method} {request.url.path}: {problem.detail}")

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, problem: RequestValidationError) -> Response:
        lines = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in problem.errors()]
        return error(422, "bad-request", "; ".join(lines))

    app.add_middleware(BodyLimit)
    app.add_middleware(Parting)
    app.add_middleware(Requests)  # the last one added is the outermost


class BodyLimit:
    """Refuses bodies over `BODY_LIMIT`, declared or streamed, except those of files."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes in."""
        if scope["type"] != "http" or scope["path"].startswith(STREAMED):
            await self.app(scope, receive, send)
            return
        if int(dict(scope["headers"]).get(b"content-length", b"0")) > BODY_LIMIT:
            await error(413, "too-large", f"a body may have {BODY_LIMIT} bytes")(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > BODY_LIMIT:
                raise HTTPException(413, f"a body may have {BODY_LIMIT} bytes")
            return message

        await self.app(scope, counted, send)
