"""`/i/{deployment}`: the published client's inference protocol for text; `openai.py` is the other dialect.

Answers hold exactly the published keys: the client refuses any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field
from starlette.types import ASGIApp

from arena_gitops.spec.resource import Frozen
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Caller, Role
from arena_runner.server.model_client import ModelClient
from arena_runner.server.served import Served, find
from arena_runner.serving.protocol import Generate, GenerateOne, Params, Piece

SERVED_BY = "x-arena-served-by"


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Close what the routes have opened."""
    yield
    client = getattr(getattr(app, "state", None), "model_client", None)
    if isinstance(client, ModelClient):
        await client.close()


router = APIRouter(prefix="/i/{deployment}", tags=["inference"], lifespan=_lifespan)

Inferrer = Annotated[Caller, caller(Role.INFERENCE)]


async def models_of(request: Request) -> ModelClient:
    """The one client of this server, made inside its event loop on first use."""
    state = request.app.state
    if not hasattr(state, "model_client"):
        state.model_client = ModelClient()
    client = state.model_client
    assert isinstance(client, ModelClient)
    return client


def _served(world: TheWorld, _caller: Inferrer, deployment: str, namespace: str = "main") -> Served:
    return find(world, deployment, namespace)


TheModels = Annotated[ModelClient, Depends(models_of)]
TheServed = Annotated[Served, Depends(_served)]


class Prompts(Frozen):
    """Body of `generate`."""

    prompts: Annotated[tuple[str, ...], Field(min_length=1, max_length=1024)]
    params: Params = Params()
    session_id: str | None = None
    """accepted and not used: sessions have no room yet"""


class Prompt(Frozen):
    """Body of `generate_stream`."""

    prompt: str
    params: Params = Params()
    session_id: str | None = None


@router.get("/status")
def status(served: TheServed) -> Response:
    """What answers here."""
    agent = {"algo": served.algorithm, "multi_agent": False, "llm": True, "recurrent": False}
    body = {
        "success": True,
        "deployment_id": served.deployment,
        "instance_id": f"{served.deployment}@{served.revision}",
        "agent": {**agent, "supervised": served.algorithm in {"SFT", "DPO"}},
    }
    return _answer(body, served)


@router.post("/generate")
async def generate(served: TheServed, models: TheModels, body: Prompts) -> Response:
    """Complete every prompt."""
    done = await models.generate(
        served, Generate(adapter=served.adapter, prompts=body.prompts, params=body.params)
    )
    tokens = sum(result.finish.completion_tokens for result in done.results)
    results = [
        {"prompt": prompt, "completion": result.text}
        for prompt, result in zip(body.prompts, done.results, strict=True)
    ]
    answer = {
        "success": True,
        "results": results,
        "batch_size": len(results),
        "inference_time_ms": done.seconds * 1000,
        "tokens_per_second": tokens / done.seconds if done.seconds else 0.0,
    }
    return _answer(answer, served)


@router.post("/generate_stream")
async def generate_stream(served: TheServed, models: TheModels, body: Prompt) -> Response:
    """Complete one prompt as raw text, chunk by chunk."""
    ask = GenerateOne(adapter=served.adapter, prompt=body.prompt, params=body.params)
    pieces = await opened(models, served, ask)

    async def text() -> AsyncIterator[str]:
        async for piece in pieces:
            if piece.error is not None:
                yield f"\n[ERROR: {piece.error}]"  # a chunk of its own: the client looks at its beginning
            elif piece.text:
                yield piece.text

    return StreamingResponse(
        text(), media_type="text/plain; charset=utf-8", headers={SERVED_BY: served.label}
    )


async def opened(models: ModelClient, served: Served, ask: GenerateOne) -> AsyncIterator[Piece]:
    """Pieces whose request has been accepted: what is wrong with it is raised here, not in the stream."""
    stack = AsyncExitStack()
    stream = await stack.enter_async_context(models.stream(served, ask))

    async def pieces() -> AsyncIterator[Piece]:
        async with stack:
            async for piece in stream:
                yield piece

    return pieces()


def _answer(body: dict[str, Any], served: Served) -> Response:
    return JSONResponse(body, headers={SERVED_BY: served.label})
