"""`/mlflow/`: MLflow's own pages and API behind our login, by the rules of `mlflow_rules`.

What passes is streamed both ways. MLflow never sees our tokens or cookies, and what it serves as an artifact cannot
run as a page of ours.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import quote

import httpx
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.routing import APIRoute
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from arena_runner.server.api.door import TheWorld, identify
from arena_runner.server.api.login import to_login
from arena_runner.server.auth import Identity, Role
from arena_runner.server.mlflow_rules import Need, alias_problem, label_problem, need, only_asks
from arena_runner.server.refusals import RefusedError
from arena_runner.server.registry import ask_alias, credentials
from arena_runner.server.services import audit
from arena_runner.server.world import World

PREFIX = "/mlflow"
SENT = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "range", "if-none-match"})
SENT |= {"if-modified-since", "if-range"}
"""Headers of a request that MLflow has any business with."""
KEPT = frozenset({"content-type", "content-length", "content-encoding", "content-disposition", "etag"})
KEPT |= {"cache-control", "last-modified", "accept-ranges", "content-range", "vary"}
SAFELY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
}
ARTIFACTS = ("get-artifact", "model-versions/get-artifact", "artifacts")
"""In a path: what is behind it was written by training code."""


class _Pages(APIRoute):
    """Sends a browser that is not logged in to the login page instead of answering 401."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RefusedError as problem:
                if problem.status == 401 and "text/html" in request.headers.get("accept", ""):
                    return to_login(request)
                raise

        return answer


def _reader(request: Request) -> Identity:
    """Somebody who may look; MLflow's own page is trusted, which knows nothing of the tokens of our forms."""
    return identify(request, trust_own_pages=True).require(Role.VIEWER)


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    yield
    client = getattr(getattr(app, "state", None), "mlflow_client", None)
    if isinstance(client, httpx.AsyncClient):
        await client.aclose()


router = APIRouter(tags=["mlflow"], route_class=_Pages, lifespan=_lifespan, include_in_schema=False)
Reader = Annotated[Identity, Depends(_reader)]


@router.get(PREFIX)
def without_slash() -> Response:
    """The page's own addresses are relative to the slash."""
    return RedirectResponse(f"{PREFIX}/", status_code=307)


@router.api_route(PREFIX + "/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def proxy(request: Request, world: TheWorld, caller: Reader, path: str) -> Response:
    """Pass a request on if its sender may make it."""
    body = await request.body()
    wanted = need(request.method, path)
    _check(caller, wanted, request, path, body)
    if wanted is Need.ALIAS:
        return await _moved(request, world, caller, path, body)
    return await _passed(request, world, path, body)


def _check(caller: Identity, wanted: Need, request: Request, path: str, body: bytes) -> None:
    if wanted is Need.NEVER:
        message = f"{request.method} {path}: only the server writes that; people set aliases and tags"
        raise RefusedError(403, "read-only", message)
    if wanted is not Need.READ:
        caller.require(Role.EDITOR)
        sent = _object(body)  # MLflow reads the body, and nothing else, of everything that is no GET
        problem = alias_problem(sent) if wanted is Need.ALIAS else label_problem(sent)
        if problem:
            raise RefusedError(403, "read-only", problem)
    if path == "graphql" and not only_asks(str(_object(body).get("query", ""))):
        raise RefusedError(403, "read-only", "only queries may be sent there")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _moved(request: Request, world: World, caller: Identity, path: str, body: bytes) -> Response:
    """Move an alias, and write down who did: before, so that nothing is done unseen, and what came of it."""
    sent = _object(body)
    model, alias = str(sent["name"]), str(sent["alias"])
    new = str(sent.get("version")) if request.method == "POST" else None
    before = await run_in_threadpool(ask_alias, world.links.mlflow, model, alias)
    if not before.reachable:
        raise _away()
    wish = audit.Wish(model, alias, before.version, new)
    number = await run_in_threadpool(audit.ask, world, wish, caller)
    answer = await _passed(request, world, path, body)
    await run_in_threadpool(audit.settle, world, number, done=answer.status_code < 400)
    return answer


async def _passed(request: Request, world: World, path: str, body: bytes) -> Response:
    if world.links.mlflow is None:
        raise _away()
    client = _client(request)
    headers = {name: value for name, value in request.headers.items() if name in SENT}
    url = f"{world.links.mlflow}/{quote(path)}"
    query = request.url.query
    outgoing = client.build_request(
        request.method, f"{url}?{query}" if query else url, headers=headers, content=body or None
    )
    try:
        answer = await client.send(outgoing, stream=True)
    except httpx.TransportError as problem:
        raise _away() from problem
    kept = {name: value for name, value in answer.headers.items() if name in KEPT}
    kept |= SAFELY
    if any(part in path for part in ARTIFACTS):
        kept["Content-Security-Policy"] = (
            "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        )
    return StreamingResponse(
        answer.aiter_raw(),
        status_code=answer.status_code,
        headers=kept,
        background=BackgroundTask(answer.aclose),
    )


def _client(request: Request) -> httpx.AsyncClient:
    """The one client of this server, made inside its event loop on first use."""
    state = request.app.state
    if not hasattr(state, "mlflow_client"):
        state.mlflow_client = httpx.AsyncClient(
            timeout=httpx.Timeout(60.0, connect=5.0),
            trust_env=False,
            follow_redirects=False,
            auth=credentials(),
        )
    client: httpx.AsyncClient = state.mlflow_client
    return client


def _away() -> RefusedError:
    return RefusedError(503, "mlflow-away", "MLflow does not answer; runs go on, and it is told later")
