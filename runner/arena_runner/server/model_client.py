"""Speaks to model servers (`arena_runner.serving.protocol`) on behalf of the inference routes."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import ValidationError

from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served
from arena_runner.server.traffic import Ended, Outcome, Traffic
from arena_runner.server.turns import Turns
from arena_runner.serving.policy_protocol import Act, Acted
from arena_runner.serving.protocol import Generate, Generated, GenerateOne, Piece

TIMEOUT = httpx.Timeout(connect=5.0, read=600.0, write=30.0, pool=30.0)


class ModelClient:
    """One per server; connections are shared."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic, self._turns = traffic, Turns(traffic)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        # trust_env off: a proxy of the environment must never see loopback traffic or its tokens
        self._http = httpx.AsyncClient(timeout=TIMEOUT, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def generate(self, served: Served, body: Generate) -> Generated:
        """Complete everything at once."""
        async with self._turns.turn(served), self._counted(served) as count:
            async with self._post(served, "/generate", body.model_dump(mode="json")) as answer:
                await _all_of(served, answer)
                done = Generated.model_validate_json(answer.content)
            count.tokens = sum(result.finish.completion_tokens for result in done.results)
            return done

    async def act(self, served: Served, body: Act) -> Acted:
        """What a policy does."""
        asked = body.model_dump(mode="json")
        async with (
            self._turns.turn(served),
            self._counted(served),
            self._post(served, "/act", asked) as answer,
        ):
            await _all_of(served, answer)
            return Acted.model_validate_json(answer.content)

    @asynccontextmanager
    async def stream(self, served: Served, body: GenerateOne) -> AsyncIterator[AsyncIterator[Piece]]:
        """Complete one piece by piece; entering it raises what is wrong with the request."""
        asked = body.model_dump(mode="json")
        async with (
            self._turns.turn(served),
            self._counted(served) as count,
            self._post(served, "/generate_stream", asked) as answer,
        ):
            yield count.watched(_pieces(answer))

    @asynccontextmanager
    async def _counted(self, served: Served) -> AsyncIterator[_Count]:
        """Tell of the request when it ends; what the caller did wrong is no failure of the revision."""
        count = _Count()
        try:
            yield count
        except RefusedError as no:
            count.outcome = "rejected" if no.status < 500 else "unavailable" if no.status == 503 else "failed"
            raise
        finally:
            self._traffic.ended(served.name, served.revision, count.ended())

    @asynccontextmanager
    async def _post(self, served: Served, path: str, body: Any) -> AsyncIterator[httpx.Response]:
        headers = {"Authorization": f"Bearer {served.server.token}"}
        request = self._http.build_request("POST", served.server.url + path, json=body, headers=headers)
        try:
            answer = await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise _silent(served, error) from error
        try:
            if answer.status_code != 200:
                await _all_of(served, answer)
                raise _refusal(served, answer)
            yield answer
        finally:
            await answer.aclose()


@dataclass(slots=True)
class _Count:
    """One request while it runs."""

    began: float = field(default_factory=time.perf_counter)
    first: float | None = None
    tokens: int = 0
    outcome: Outcome = "ok"

    async def watched(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        """The pieces, looked at in passing."""
        async for piece in pieces:
            if self.first is None and piece.error is None:
                self.first = time.perf_counter()
            if piece.error is not None:
                self.outcome = "failed"
            if piece.finish is not None:
                self.tokens = piece.finish.completion_tokens
            yield piece

    def ended(self) -> Ended:
        first = None if self.first is None else self.first - self.began
        return Ended(self.outcome, time.perf_counter() - self.began, self.tokens, first)


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


async def _all_of(served: Served, answer: httpx.Response) -> None:
    try:
        await answer.aread()
    except httpx.TransportError as error:
        raise _silent(served, error) from error


def _silent(served: Served, error: httpx.TransportError) -> RefusedError:
    text = f"the model server of {served.deployment} does not answer ({type(error).__name__})"
    return RefusedError(503, "not-serving", text)


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
        case (
            401 | 404
        ):  # it was restarted, has another token now, and has not been given its adapters back yet
            return RefusedError(503, "not-serving", f"deployment {served.deployment} is being loaded again")
        case 422:
            return RefusedError(422, code, message)
        case 503:
            return RefusedError(503, code, message)
        case _:
            return RefusedError(502, code, message)
