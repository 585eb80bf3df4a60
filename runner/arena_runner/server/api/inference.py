"""`/i/{deployment}`: the published client's inference protocol for text and actions; `openai.py` is the other dialect.

Answers hold exactly the published keys: the client refuses any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field, JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from arena_gitops.spec.algorithms import knobs_for
from arena_gitops.spec.algorithms.recurrent_ppo import RecurrentPpoKnobs
from arena_gitops.spec.classic_knobs import ClassicKnobs
from arena_gitops.spec.resource import Frozen
from arena_runner.server.api.door import TheWorld, world_of
from arena_runner.server.api.sessions import Inferrer, Talk
from arena_runner.server.auth import Identity
from arena_runner.server.model_client import ModelClient
from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served, find
from arena_runner.server.services import sessions
from arena_runner.server.world import World
from arena_runner.serving import arrays
from arena_runner.serving.arrays import WireError
from arena_runner.serving.policy_protocol import Act, Observed
from arena_runner.serving.protocol import Generate, Generated, GenerateOne, Message, Params, Piece

SERVED_BY = "x-arena-served-by"


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Close what the routes have opened."""
    yield
    client = getattr(getattr(app, "state", None), "model_client", None)
    if isinstance(client, ModelClient):
        await client.close()


router = APIRouter(prefix="/i/{deployment}", tags=["inference"], lifespan=_lifespan)

SessionId = Annotated[str | None, Field(min_length=1, max_length=200)]
"""Made up by the client; one that nobody knows yet begins a session."""


async def models_of(request: Request) -> ModelClient:
    """The one client of this server, made inside its event loop on first use."""
    state = request.app.state
    if not hasattr(state, "model_client"):
        state.model_client = ModelClient(world_of(request).links.traffic)
    client = state.model_client
    assert isinstance(client, ModelClient)
    return client


SESSION = "x-session-id"
"""Header by which a caller without sessions of ours says which requests belong together."""


def _served(
    world: TheWorld, _caller: Inferrer, request: Request, deployment: str, namespace: str = "main"
) -> Served:
    return find(world, deployment, namespace, request.headers.get(SESSION))


TheModels = Annotated[ModelClient, Depends(models_of)]
TheServed = Annotated[Served, Depends(_served)]


def _of_words(served: TheServed) -> Served:
    if served.acts:
        raise _wrong_kind(served)
    return served


def _of_actions(served: TheServed) -> Served:
    if not served.acts:
        raise _wrong_kind(served)
    return served


def _of_predictions(served: TheServed) -> Served:
    if served.algorithm != SUPERVISED:
        raise _wrong_kind(served)
    return served


ThePredictor = Annotated[Served, Depends(_of_predictions)]
TheModel = Annotated[Served, Depends(_of_words)]
ThePolicy = Annotated[Served, Depends(_of_actions)]


SUPERVISED = "SFT"
"""the algorithm whose models also predict"""
PREDICTED = 512
"""tokens of a prediction at most"""
MOST_PROMPTS = 1024


class Inputs(Frozen):
    """Body of `predict`."""

    inputs: JsonValue


class Prompts(Frozen):
    """Body of `generate`."""

    prompts: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_PROMPTS)]
    params: Params = Params()
    session_id: SessionId = None


class Prompt(Frozen):
    """Body of `generate_stream`."""

    prompt: str
    params: Params = Params()
    session_id: SessionId = None


@router.get("/status")
def status(served: TheServed) -> Response:
    """What answers here."""
    knobs = knobs_for(served.algorithm)
    remembers = knobs is not None and issubclass(knobs, RecurrentPpoKnobs)
    several = knobs is not None and issubclass(knobs, ClassicKnobs) and knobs.SEVERAL
    kind = {"multi_agent": several, "llm": not served.acts, "recurrent": remembers, "supervised": False}
    body = {
        "success": True,
        "deployment_id": served.deployment,
        "instance_id": f"{served.deployment}@{served.revision}",
        # told that it is a language model the client refuses to predict, told that it is supervised to generate
        "agent": None if served.algorithm == SUPERVISED else {"algo": served.algorithm, **kind},
    }
    return _answer(body, served)


@router.post("/generate")
async def generate(
    world: TheWorld, caller: Inferrer, served: TheModel, models: TheModels, body: Prompts
) -> Response:
    """Complete every prompt."""
    if body.session_id is not None:
        served = await run_in_threadpool(_in_session, world, served, body.session_id)
        done = await _generate_in_session(_talk(world, caller, served, body), models, served, body.params)
    else:
        ask = Generate(adapter=served.adapter, prompts=body.prompts, params=body.params)
        done = await models.generate(served, ask)
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
async def generate_stream(
    world: TheWorld, caller: Inferrer, served: TheModel, models: TheModels, body: Prompt
) -> Response:
    """Complete one prompt as raw text, chunk by chunk."""
    stack = AsyncExitStack()
    if body.session_id is not None:
        served = await run_in_threadpool(_in_session, world, served, body.session_id)
        talk = _talk(world, caller, served, body)
        pieces = await _stream_in_session(talk, models, served, body.params, stack)
    else:
        ask = GenerateOne(adapter=served.adapter, prompt=body.prompt, params=body.params)
        pieces = await stack.enter_async_context(models.stream(served, ask))

    async def text() -> AsyncIterator[str]:
        async for piece in pieces:
            if piece.error is not None:
                yield f"\n[ERROR: {piece.error}]"  # a chunk of its own: the client looks at its beginning
            elif piece.text:
                yield piece.text

    return Streamed(stack, text(), media_type="text/plain; charset=utf-8", headers={SERVED_BY: served.label})


@router.post("/get_action")
async def get_action(served: ThePolicy, models: TheModels, body: Observed) -> Response:
    """What a policy does; arrays pass through as they are."""
    done = await models.act(served, Act(adapter=served.adapter, **body.model_dump()))
    hidden = {} if done.hidden_state is None else {"hidden_state": done.hidden_state}
    return _answer({"success": True, "action": done.action, **hidden}, served)


@router.post("/predict")
async def predict(served: ThePredictor, models: TheModels, body: Inputs) -> Response:
    """What a model that was shown targets says to every text: greedy, an array of text in and one out."""
    try:
        prompts = tuple(arrays.decode_text(body.inputs, "inputs"))
    except WireError as problem:
        raise RefusedError(422, "bad-array", str(problem)) from problem
    if len(prompts) > MOST_PROMPTS:
        raise RefusedError(422, "bad-request", f"inputs: at most {MOST_PROMPTS} texts at a time")
    params = Params(do_sample=False, temperature=0, max_new_tokens=PREDICTED)
    done = await models.generate(served, Generate(adapter=served.adapter, prompts=prompts, params=params))
    answer = {
        "success": True,
        "results": arrays.encode(np.array([result.text for result in done.results])),
        "batch_size": len(prompts),
        "inference_time_ms": done.seconds * 1000,
    }
    return _answer(answer, served)


def _wrong_kind(served: Served) -> RefusedError:
    also = ", or predict" if served.algorithm == SUPERVISED else ""
    is_one = (
        "a policy: use get_action"
        if served.acts
        else f"a language model: use generate or generate_stream{also}"
    )
    return RefusedError(400, "wrong-kind", f"deployment {served.deployment} is {is_one}")


class Streamed(StreamingResponse):
    """A stream whose source is closed with it, also when the caller hung up before it began."""

    def __init__(self, source: AsyncExitStack, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, then close."""
        async with self._source:
            await super().__call__(scope, receive, send)


def _in_session(world: World, served: Served, talk: str) -> Served:
    """All of a conversation is answered by one side while a canary is watched."""
    return served if served.pinned else find(world, served.deployment, served.namespace, talk)


def _talk(world: World, caller: Identity, served: Served, body: Prompts | Prompt) -> Talk:
    prompts = body.prompts if isinstance(body, Prompts) else (body.prompt,)
    if len(prompts) != 1:
        raise RefusedError(422, "bad-request", "a session takes one prompt at a time")
    owner = sessions.owner(world, served.namespace, served.deployment, caller.subject)
    return Talk(world, owner, body.session_id or "", prompts[0])


async def _generate_in_session(talk: Talk, models: ModelClient, served: Served, params: Params) -> Generated:
    async def send(messages: tuple[Message, ...]) -> Generated:
        ask = Generate(adapter=served.adapter, messages=(messages,), params=params)
        return await models.generate(served, ask)

    done = await talk.ask(send)
    await talk.keep(done.results[0].text)
    return done


async def _stream_in_session(
    talk: Talk, models: ModelClient, served: Served, params: Params, stack: AsyncExitStack
) -> AsyncIterator[Piece]:
    async def send(messages: tuple[Message, ...]) -> AsyncIterator[Piece]:
        ask = GenerateOne(adapter=served.adapter, messages=messages, params=params)
        return await stack.enter_async_context(models.stream(served, ask))

    return talk.heard(await talk.ask(send))


def _answer(body: dict[str, Any], served: Served) -> Response:
    return JSONResponse(body, headers={SERVED_BY: served.label})
