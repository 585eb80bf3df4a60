"""The one door of a serving host: every model server behind it is opened by its own token.

The server speaks the model servers' protocol (`serving.protocol`) to this address. What names files on the server's
disk is brought here by digest first, through the server; everything else is handed on as it comes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from arena_gitops.errors import ArenaError
from arena_runner.server_link import ServerLink, UnreachableError

UNUSED_S = 30 * 24 * 3600.0
MOST_BYTES = 32 << 20
"""of a request: prompts and observations"""
METHODS = ["GET", "POST", "DELETE"]
TIMEOUT = httpx.Timeout(connect=5.0, read=600.0, write=30.0, pool=30.0)

log = logging.getLogger(__name__)
Find = Callable[[str], str | None]
"""token → address of the model server it opens"""


class Shelter:
    """Adapter files on this machine, by digest; what was not used for long is removed."""

    def __init__(self, link: ServerLink, folder: Path) -> None:
        self._link, self._folder = link, folder
        folder.mkdir(parents=True, exist_ok=True)

    def bring(self, body: bytes) -> bytes:
        """The same `LoadAdapter`, with the places the files have here."""
        asked: dict[str, Any] = json.loads(body)
        for file in asked.get("files", {}).values():
            file["path"] = str(self._here(str(file["digest"])))
        asked.pop("path", None)  # never a folder of this machine
        return json.dumps(asked).encode()

    def _here(self, digest: str) -> Path:
        target = self._folder / digest.removeprefix("sha256:")
        if target.parent != self._folder or not target.name.isalnum():
            raise ValueError(f"{digest!r} is no digest")
        if target.is_file():
            target.touch()
        else:
            self._forget_unused()
            self._link.get(digest, target)
        return target

    def _forget_unused(self) -> None:
        for path in self._folder.iterdir():
            if time.time() - path.stat().st_mtime > UNUSED_S:
                path.unlink(missing_ok=True)


def create_gateway(find: Find, shelter: Shelter) -> Starlette:
    """An app that hands on to whatever `find` names."""
    http = httpx.AsyncClient(timeout=TIMEOUT, limits=httpx.Limits(max_connections=None), trust_env=False)

    async def hand_on(request: Request) -> Response:
        url = find(request.headers.get("authorization", "").removeprefix("Bearer "))
        if url is None:
            return _no(401, "unauthorized", "Authorization: Bearer with the token of a model server")
        if int(request.headers.get("content-length") or 0) > MOST_BYTES:
            return _no(413, "too-large", f"at most {MOST_BYTES} bytes")
        body = await request.body()
        path = request.url.path
        if request.method == "POST" and path == "/adapters":
            try:
                body = await asyncio.to_thread(shelter.bring, body)
            except UnreachableError as problem:
                return _no(503, "server-away", str(problem))
            except (ArenaError, ValueError, KeyError, TypeError) as problem:
                return _no(422, "unfit-adapter", f"its files cannot be had: {problem}")
        return await _asked(http, request, url, body)

    return Starlette(routes=[Route("/{path:path}", hand_on, methods=METHODS)])


async def _asked(http: httpx.AsyncClient, request: Request, url: str, body: bytes) -> Response:
    headers = {"authorization": request.headers["authorization"], "content-type": "application/json"}
    asked = http.build_request(request.method, url + request.url.path, content=body, headers=headers)
    try:
        answer = await http.send(asked, stream=True)
    except httpx.TransportError as problem:
        return _no(503, "not-serving", f"the model server does not answer ({type(problem).__name__})")
    kept = {n: v for n, v in answer.headers.items() if n in {"content-type", "retry-after"}}
    end = BackgroundTask(answer.aclose)
    return StreamingResponse(answer.aiter_bytes(), answer.status_code, headers=kept, background=end)


def _no(status: int, code: str, message: str) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"code": code, "message": message}, status_code=status, headers=headers)
