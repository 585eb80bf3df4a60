"""What the client's routes share: its error shape, and values it sends as empty text when it has none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict
from starlette.exceptions import HTTPException

from arena_runner.server.api.door import caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services.environment_uploads import AmbiguousEntrypointError

PREFIX = "/api/cli/v1"

Viewer = Annotated[Identity, caller(Role.VIEWER)]
Editor = Annotated[Identity, caller(Role.EDITOR)]

Text = Annotated[str | None, BeforeValidator(lambda value: value or None)]
"""Text that is absent when it is empty: the client writes `?name=` for a name it does not have."""


class Sent(BaseModel):
    """A body of the client; what a later version adds is not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Named(Sent):
    """The body of most deletions."""

    name: str


def plain(text: str) -> str:
    """Text for the client, which takes square brackets for markup and loses or stumbles over them."""
    return text.replace("[", "(").replace("]", ")")


def router(prefix: str = PREFIX) -> APIRouter:
    """A router whose refusals have the client's shape."""
    return APIRouter(prefix=prefix, tags=["arena"], route_class=_Route)


class _Route(APIRoute):
    """Answers refusals as the client reads them: a text in `detail`, and no lists."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except AmbiguousEntrypointError as problem:
                more = {"available_entrypoints": problem.available}
                return _error(problem.status, problem.code, problem.message, more)
            except RefusedError as problem:
                return _error(problem.status, problem.code, problem.message)
            except RequestValidationError as problem:
                lines = [f"{'.'.join(str(p) for p in e['loc'][1:])}: {e['msg']}" for e in problem.errors()]
                return _error(422, "bad-request", "; ".join(lines))
            except HTTPException as problem:
                return _error(problem.status_code, "bad-request", str(problem.detail))

        return answer


def _error(status: int, code: str, message: str, more: Mapping[str, Any] | None = None) -> Response:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}.get(status)
    body = {"detail": plain(message), "error_code": code, **(more or {})}
    return JSONResponse(body, status_code=status, headers=headers)
