"""`/v1`: OpenAI's dialect, for the unmodified `openai` package. `model` is a deployment's name."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from arena_runner.server.api.door import TheWorld
from arena_runner.server.api.inference import SERVED_BY, TheModels, opened
from arena_runner.server.api.openai_body import ChatAsk, TextAsk
from arena_runner.server.api.sessions import Inferrer
from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served, everything, find
from arena_runner.server.world import World
from arena_runner.serving.protocol import Finish, Generate, GenerateOne, Piece, Result

Json = dict[str, Any]
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    503: "overloaded_error",
}


class OpenAIRoute(APIRoute):
    """Says no in OpenAI's words."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route, dependencies included."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except RefusedError as no:
                return _no(400 if no.status == 422 else no.status, no.code, no.message)
            except (RequestValidationError, ValidationError) as no:
                first = no.errors()[0]
                path = [str(part) for part in first["loc"] if part != "body"]
                text = str(first["msg"]).removeprefix("Value error, ")
                return _no(
                    400, "bad-request", f"{'.'.join(path)}: {text}" if path else text, ".".join(path) or None
                )

        return handler


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)


@router.get("/models")
def list_models(world: TheWorld, _caller: Inferrer) -> Json:
    """Everything that serves."""
    return {"object": "list", "data": [_model(served) for served in everything(world)]}


@router.get("/models/{name:path}")
def get_model(world: TheWorld, _caller: Inferrer, name: str) -> Json:
    """One deployment."""
    return _model(_find(world, name))


@router.post("/chat/completions")
async def chat(world: TheWorld, models: TheModels, _caller: Inferrer, body: ChatAsk) -> Response:
    """Continue a conversation."""
    served = await run_in_threadpool(_find, world, body.model)
    messages, params = body.conversation(), body.params()
    form = Form("chatcmpl", "chat.completion", served, body.model)
    if body.stream:
        ask = GenerateOne(adapter=served.adapter, messages=messages, params=params)
        first = {"role": "assistant", "content": ""}
        chunks = form.chunks(
            await opened(models, served, ask), lambda text: {"delta": {"content": text}}, first
        )
        return _events(form, chunks, usage=body.usage_wanted)
    ask_all = Generate(adapter=served.adapter, messages=(messages,) * body.copies, params=params)
    done = await models.generate(served, ask_all)
    choices = [
        {
            "index": n,
            "message": {"role": "assistant", "content": r.text},
            "finish_reason": r.finish.reason,
            "logprobs": None,
        }
        for n, r in enumerate(done.results)
    ]
    return _whole(form, choices, done.results, prompts=1)


@router.post("/completions")
async def complete(world: TheWorld, models: TheModels, _caller: Inferrer, body: TextAsk) -> Response:
    """Continue text exactly as given, without chat template."""
    served = await run_in_threadpool(_find, world, body.model)
    prompts, params = body.prompts(), body.params()
    form = Form("cmpl", "text_completion", served, body.model)
    if body.stream:
        if len(prompts) > 1:
            raise RefusedError(422, "bad-request", "one prompt at a time can be streamed")
        ask = GenerateOne(adapter=served.adapter, prompt=prompts[0], params=params, raw=True)
        chunks = form.chunks(await opened(models, served, ask), lambda text: {"text": text}, None)
        return _events(form, chunks, usage=body.usage_wanted)
    done = await models.generate(
        served, Generate(adapter=served.adapter, prompts=prompts, params=params, raw=True)
    )
    choices = [
        {"index": n, "text": r.text, "finish_reason": r.finish.reason, "logprobs": None}
        for n, r in enumerate(done.results)
    ]
    return _whole(form, choices, done.results, prompts=len(prompts) // body.copies)


class Form:
    """What every answer to one request repeats."""

    def __init__(self, prefix: str, kind: str, served: Served, model: str) -> None:
        self.served = served
        self.kind = kind
        self._common = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": served.label,
        }
        self.finish: Finish | None = None

    def body(self, **more: Any) -> Json:
        """A whole answer."""
        return {**self._common, "object": self.kind, **more}

    def chunk(self, choices: list[Json], **more: Any) -> Json:
        """A piece of a streamed answer."""
        kind = "chat.completion.chunk" if self.kind == "chat.completion" else self.kind
        return {**self._common, "object": kind, "choices": choices, **more}

    async def chunks(
        self, pieces: AsyncIterator[Piece], content: Callable[[str], Json], first: Json | None
    ) -> AsyncIterator[Json]:
        """Pieces as chunks; a failure is an `error` object, which the client raises."""
        if first is not None:
            yield self.chunk([{"index": 0, "delta": first, "finish_reason": None}])
        async for piece in pieces:
            if piece.error is not None:
                yield {"error": {"message": piece.error, "type": "server_error", "code": "generation-failed"}}
                return
            if piece.text:
                yield self.chunk([{"index": 0, **content(piece.text), "finish_reason": None}])
            if piece.finish:
                self.finish = piece.finish
                end: Json = {"delta": {}} if first is not None else {"text": ""}
                yield self.chunk([{"index": 0, **end, "finish_reason": piece.finish.reason}])


def _events(form: Form, chunks: AsyncIterator[Json], *, usage: bool) -> Response:
    """Chunks as server-sent events."""

    async def lines() -> AsyncIterator[str]:
        async for chunk in chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        if usage and form.finish:
            counts = _usage(form.finish.prompt_tokens, form.finish.completion_tokens)
            yield f"data: {json.dumps(form.chunk([], usage=counts))}\n\n"
        yield "data: [DONE]\n\n"

    headers = {SERVED_BY: form.served.label, "Cache-Control": "no-cache"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def _whole(form: Form, choices: list[Json], results: tuple[Result, ...], *, prompts: int) -> Response:
    """An answer that is not streamed; a prompt with several completions is counted once."""
    copies = len(results) // prompts
    asked = sum(result.finish.prompt_tokens for result in results[::copies])
    answered = sum(result.finish.completion_tokens for result in results)
    body = form.body(choices=choices, usage=_usage(asked, answered))
    return JSONResponse(body, headers={SERVED_BY: form.served.label})


def _usage(asked: int, answered: int) -> Json:
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _find(world: World, model: str) -> Served:
    """`name`, or `namespace/name` for a preview's deployment."""
    namespace, _, name = model.rpartition("/")
    return find(world, name, namespace or "main")


def _model(served: Served) -> Json:
    return {
        "id": served.deployment,
        "object": "model",
        "created": int(served.since),
        "owned_by": "arena",
        "arena": {"revision": served.revision, "checkpoint": served.checkpoint, "run": served.run_id},
    }


def _no(status: int, code: str, message: str, param: str | None = None) -> Response:
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    headers = {"Retry-After": "2"} if status == 503 else None
    return JSONResponse({"error": error}, status_code=status, headers=headers)
