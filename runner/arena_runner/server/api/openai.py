"""`/v1`: OpenAI's dialect, for the unmodified `openai` package. `model` is a deployment's name."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from arena_runner.server.api.door import TheWorld
from arena_runner.server.api.inference import SERVED_BY, SESSION, Streamed, TheModels
from arena_runner.server.api.openai_body import Ask, ChatAsk, TextAsk, chat_logprobs, text_logprobs
from arena_runner.server.api.sessions import Inferrer
from arena_runner.server.model_client import ModelClient
from arena_runner.server.refusals import RefusedError
from arena_runner.server.served import Served, everything, find_words
from arena_runner.server.world import World
from arena_runner.serving.protocol import Finish, Generate, GenerateOne, Piece, Result, Token

Json = dict[str, Any]
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
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
                status = 400 if no.status == 422 else no.status
                return _no(status, no.code, no.message, after=no.retry_after_s)
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
    """Every language model that serves."""
    return {"object": "list", "data": [_model(served) for served in everything(world)]}


@router.get("/models/{name:path}")
def get_model(world: TheWorld, _caller: Inferrer, name: str) -> Json:
    """One deployment."""
    return _model(_find(world, name))


@router.post("/chat/completions")
async def chat(
    world: TheWorld, models: TheModels, _caller: Inferrer, request: Request, body: ChatAsk
) -> Response:
    """Continue a conversation."""
    served = await run_in_threadpool(_find, world, body.model, _session(request, body))
    messages, params = body.conversation(), body.params()
    form = Form("chatcmpl", "chat.completion", served, body.model)
    if body.stream:
        ask = GenerateOne(adapter=served.adapter, messages=messages, params=params, logprobs=body.rivals)
        return await _streamed(form, models, ask, CHAT, usage=body.usage_wanted)
    ask_all = Generate(
        adapter=served.adapter, messages=(messages,) * body.copies, params=params, logprobs=body.rivals
    )
    done = await models.generate(served, ask_all)
    choices = [
        {
            "index": n,
            "message": {"role": "assistant", "content": r.text},
            "finish_reason": r.finish.reason,
            "logprobs": chat_logprobs(r.tokens) if body.rivals is not None else None,
        }
        for n, r in enumerate(done.results)
    ]
    return _whole(form, choices, done.results, prompts=1)


@router.post("/completions")
async def complete(
    world: TheWorld, models: TheModels, _caller: Inferrer, request: Request, body: TextAsk
) -> Response:
    """Continue text exactly as given, without chat template."""
    served = await run_in_threadpool(_find, world, body.model, _session(request, body))
    prompts, params = body.prompts(), body.params()
    form = Form("cmpl", "text_completion", served, body.model)
    if body.stream:
        if len(prompts) > 1:
            raise RefusedError(422, "bad-request", "one prompt at a time can be streamed")
        ask = GenerateOne(
            adapter=served.adapter, prompt=prompts[0], params=params, raw=True, logprobs=body.logprobs
        )
        return await _streamed(form, models, ask, TEXT, usage=body.usage_wanted)
    ask_all = Generate(
        adapter=served.adapter, prompts=prompts, params=params, raw=True, logprobs=body.logprobs
    )
    done = await models.generate(served, ask_all)
    choices = [
        {
            "index": n,
            "text": r.text,
            "finish_reason": r.finish.reason,
            "logprobs": text_logprobs(r.tokens) if body.logprobs is not None else None,
        }
        for n, r in enumerate(done.results)
    ]
    return _whole(form, choices, done.results, prompts=len(prompts) // body.copies)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How chat and plain completions say the same."""

    first: Json | None
    content: Callable[[str], Json]
    end: Json
    logprobs: Callable[[Sequence[Token]], Json]


CHAT = Dialect(
    {"role": "assistant", "content": ""},
    lambda text: {"delta": {"content": text}},
    {"delta": {}},
    chat_logprobs,
)
TEXT = Dialect(None, lambda text: {"text": text}, {"text": ""}, text_logprobs)


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

    async def chunks(self, pieces: AsyncIterator[Piece], dialect: Dialect) -> AsyncIterator[Json]:
        """Pieces as chunks; a failure is an `error` object, which the client raises."""
        if dialect.first is not None:
            yield self.chunk([{"index": 0, "delta": dialect.first, "finish_reason": None}])
        async for piece in pieces:
            if piece.error is not None:
                yield {"error": {"message": piece.error, "type": "server_error", "code": "generation-failed"}}
                return
            told = {"logprobs": dialect.logprobs(piece.tokens)} if piece.tokens else {}
            if piece.text or told:
                yield self.chunk([{"index": 0, **dialect.content(piece.text), **told, "finish_reason": None}])
            if piece.finish:
                self.finish = piece.finish
                yield self.chunk([{"index": 0, **dialect.end, "finish_reason": piece.finish.reason}])


async def _streamed(
    form: Form, models: ModelClient, ask: GenerateOne, dialect: Dialect, *, usage: bool
) -> Response:
    """Pieces as server-sent events; what is wrong with the request is raised here, not in the stream."""
    stack = AsyncExitStack()
    pieces = await stack.enter_async_context(models.stream(form.served, ask))

    async def lines() -> AsyncIterator[str]:
        async for chunk in form.chunks(pieces, dialect):
            yield f"data: {json.dumps(chunk)}\n\n"
        if usage and form.finish:
            counts = _usage(form.finish.prompt_tokens, form.finish.completion_tokens)
            yield f"data: {json.dumps(form.chunk([], usage=counts))}\n\n"
        yield "data: [DONE]\n\n"

    headers = {SERVED_BY: form.served.label, "Cache-Control": "no-cache"}
    return Streamed(stack, lines(), media_type="text/event-stream", headers=headers)


def _whole(form: Form, choices: list[Json], results: tuple[Result, ...], *, prompts: int) -> Response:
    """An answer that is not streamed; a prompt with several completions is counted once."""
    copies = len(results) // prompts
    asked = sum(result.finish.prompt_tokens for result in results[::copies])
    answered = sum(result.finish.completion_tokens for result in results)
    body = form.body(choices=choices, usage=_usage(asked, answered))
    return JSONResponse(body, headers={SERVED_BY: form.served.label})


def _usage(asked: int, answered: int) -> Json:
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _find(world: World, model: str, talk: str | None = None) -> Served:
    """`name`, `name@revision`, or either of a preview: `namespace/name`."""
    namespace, _, name = model.rpartition("/")
    return find_words(world, name, namespace or "main", talk)


def _session(request: Request, body: Ask) -> str | None:
    """What requests of one session have in common: a header, else OpenAI's own words for it."""
    return request.headers.get(SESSION) or body.session


def _model(served: Served) -> Json:
    return {
        "id": served.deployment,
        "object": "model",
        "created": int(served.since),
        "owned_by": "arena",
        "arena": {
            "revision": served.revision,
            "immutable": f"{served.deployment}@{served.revision}",
            "checkpoint": served.checkpoint,
            "step": served.step,
            "run": served.run_id,
            "commit": served.commit,
        },
    }


def _no(
    status: int, code: str, message: str, param: str | None = None, *, after: int | None = None
) -> Response:
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    headers = {"Retry-After": str(after)} if after else None
    return JSONResponse({"error": error}, status_code=status, headers=headers)
