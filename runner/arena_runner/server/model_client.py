"""Speaks to model servers (`arena_runner.serving.protocol`) on behalf of the inference routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from pydantic import ValidationError

from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served
from arena_runner.serving.protocol import Generate, Generated, GenerateOne, Piece

TIMEOUT = httpx.Timeout(connect=5.0, read=600.0, write=30.0, pool=30.0)


class ModelClient:
    """One per server; connections are shared."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        # trust_env off: a proxy of the environment must never see loopback traffic or its tokens
        self._http = httpx.AsyncClient(timeout=TIMEOUT, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def generate(self, served: Served, body: Generate) -> Generated:
        """Complete everything at once."""
        async with self._post(served, "/generate", body.model_dump(mode="json")) as answer:
            await answer.aread()
            return Generated.model_validate_json(answer.content)

    @asynccontextmanager
    async def stream(self, served: Served, body: GenerateOne) -> AsyncIterator[AsyncIterator[Piece]]:
        """Complete one piece by piece; entering it raises what is wrong with the request."""
        async with self._post(served, "/generate_stream", body.model_dump(mode="json")) as answer:
            yield _pieces(answer)

    @asynccontextmanager
    async def _post(self, served: Served, path: str, body: Any) -> AsyncIterator[httpx.Response]:
        headers = {"Authorization": f"Bearer {served.server.token}"}
        request = self._http.build_request("POST", served.server.url + path, json=body, headers=headers)
        try:
            answer = await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            text = f"the model server of {served.deployment} does not answer ({type(error).__name__})"
            raise RefusedError(503, "not-serving", text) from error
        try:
            if answer.status_code != 200:
                await answer.aread()
                raise _refusal(served, answer)
            yield answer
        finally:
            await answer.aclose()


async def _pieces(answer: httpx.Response) -> AsyncIterator[Piece]:
    """The pieces; a connection that is cut is a last piece that says so."""
    ended = False
    try:
        async for line in answer.aiter_lines():
            piece = Piece.model_validate_json(line)
            ended = piece.finish is not None or piece.error is not None
            yield piece
    except (httpx.TransportError, ValidationError) as error:
        yield Piece(error=f"the model server broke off ({type(error).__name__})")
        return
    if not ended:
        yield Piece(error="the model server broke off")


def _refusal(served: Served, answer: httpx.Response) -> RefusedError:
    """What the model server said, as this server says it."""
    try:
        body = json.loads(answer.content)
        code, message = str(body["code"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        code, message = (
            "model-server",
            f"the model server of {served.deployment} answered {answer.status_code}",
        )
    match answer.status_code:
        case 404:  # it was restarted and has not been given its adapters back yet
            return RefusedError(503, "not-serving", f"deployment {served.deployment} is being loaded again")
        case 422:
            return RefusedError(422, code, message)
        case 503:
            return RefusedError(503, code, message)
        case _:
            return RefusedError(502, code, message)
