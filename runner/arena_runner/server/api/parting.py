"""A server that has been asked to stop: nothing new is begun, and what was begun ends in words, not in a cut line.

From the signal on, only workers (who may save) and those who ask how it is are answered; everybody else is told to
come again. A request in flight has until uvicorn cancels it. Whoever has no answer by then gets a refusal, and a
stream for people gets the last line that its dialect has for failures.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena_gitops.spec.wire import ErrorBody
from arena_runner.server.world import World

STILL_SERVED = (
    "/api/v1/workers",
    "/api/v1/blobs/",
    "/api/v1/models/",
    "/api/v1/splits/",
    "/api/v1/wheels/",
    "/healthz",
    "/readyz",
    "/metrics",
)
STOPPING = "the server is stopping; ask again in a moment"

log = logging.getLogger(__name__)


class Parting:
    """Around every route, below the numbering of requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or see the request to its end."""
        world = getattr(scope["app"].state, "world", None) if scope["type"] == "http" else None
        if not isinstance(world, World):
            await self.app(scope, receive, send)
        elif world.draining.is_set() and not scope["path"].startswith(STILL_SERVED):
            await _refusal(scope["path"])(scope, receive, send)
        else:
            await _to_the_end(self.app, world, scope, receive, send)


async def _to_the_end(app: ASGIApp, world: World, scope: Scope, receive: Receive, send: Send) -> None:
    kind: str | None = None

    async def noted(message: Message) -> None:
        nonlocal kind
        if message["type"] == "http.response.start":
            kind = dict(message.get("headers", ())).get(b"content-type", b"").decode("latin-1")
        await send(message)

    try:
        await app(scope, receive, noted)
    except asyncio.CancelledError:
        task, words = asyncio.current_task(), _last_words(scope["path"], kind)
        if task is None or not world.draining.is_set() or (kind is not None and words is None):
            raise
        task.uncancel()
        log.warning("a request was ended because the server stops")
        if kind is None:
            await _refusal(scope["path"])(scope, receive, send)
        else:
            await send({"type": "http.response.body", "body": words, "more_body": False})


def _refusal(path: str) -> JSONResponse:
    """In the dialect of the place."""
    body: dict[str, Any] = ErrorBody(code="stopping", message=STOPPING).model_dump()
    if path.startswith("/v1/"):
        body = {"error": {"message": STOPPING, "type": "overloaded_error", "param": None, "code": "stopping"}}
    elif path.startswith("/api/cli/"):
        body = {"detail": STOPPING, "error_code": "stopping"}
    return JSONResponse(body, status_code=503, headers={"Retry-After": "5"})


def _last_words(path: str, kind: str | None) -> bytes | None:
    """How a stream that has begun says that it failed; None where only a cut line can say so."""
    match (kind or "").partition(";")[0]:
        case "text/event-stream":
            error = {"message": STOPPING, "type": "server_error", "code": "stopping"}
            return f"data: {json.dumps({'error': error})}\n\ndata: [DONE]\n\n".encode()
        case "text/plain" if path.startswith("/i/"):
            return f"\n[ERROR: {STOPPING}]".encode()
        case "application/x-ndjson" if path.startswith("/api/cli/"):
            line = {"kind": "status", "stage": "server", "status": "failed", "message": STOPPING}
            return json.dumps(line).encode() + b"\n"
        case _:
            return None
