"""The HTTP face of a `Generator`; the table of calls is in `protocol.py`."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from arena_gitops.errors import ArenaError
from arena_gitops.spec.wire import ErrorBody
from arena_runner.engines.reading import PolicyMismatchError
from arena_runner.peft_format import AdapterFormatError
from arena_runner.seeds import key
from arena_runner.serving.decoder import EmptyPromptError, PromptTooLongError
from arena_runner.serving.generator import Generator
from arena_runner.serving.load import read_adapter
from arena_runner.serving.prompts import message_ids, prompt_ids, raw_ids
from arena_runner.serving.protocol import (
    BASE,
    Adapter,
    Generate,
    Generated,
    GenerateOne,
    Health,
    LoadAdapter,
    Measure,
    Measured,
    Message,
    Params,
    Prove,
    Proved,
)
from arena_runner.serving.scheduler import BusyError, StoppedError
from arena_runner.serving.shelf import UnfitAdapterError, UnknownAdapterError
from arena_runner.serving.ticket import GenerationError, Ticket

STATUS: dict[type[ArenaError], tuple[int, str]] = {
    UnknownAdapterError: (404, "unknown-adapter"),
    UnfitAdapterError: (422, "unfit-adapter"),
    AdapterFormatError: (422, "unfit-adapter"),
    PromptTooLongError: (422, "prompt-too-long"),
    EmptyPromptError: (422, "empty-prompt"),
    BusyError: (503, "busy"),
    StoppedError: (503, "stopping"),
    PolicyMismatchError: (422, "policy-mismatch"),
    GenerationError: (500, "generation-failed"),
}

ONE_TOKEN = Params(max_new_tokens=1, temperature=0, do_sample=False)

router = APIRouter()


def _scheduler(request: Request) -> Generator:
    found = request.app.state.scheduler
    assert isinstance(found, Generator)
    return found


TheScheduler = Annotated[Generator, Depends(_scheduler)]


def create_app(scheduler: Generator, token: str) -> FastAPI:
    """An app whose routes work on a started scheduler."""
    app = FastAPI(title="arena-runner model server", redoc_url=None)
    app.state.scheduler = scheduler
    app.include_router(router)
    refuses(app, token, STATUS)
    return app


def refuses(app: FastAPI, token: str, statuses: Mapping[type[ArenaError], tuple[int, str]]) -> None:
    """Ask for the token, and say no in `ErrorBody`."""
    expected = f"Bearer {token}".encode()

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").encode()
        if request.url.path != "/healthz" and not hmac.compare_digest(given, expected):
            return _refusal(401, "bad-token", "send Authorization: Bearer with this model server's token")
        return await call_next(request)

    @app.exception_handler(ArenaError)
    async def refused(_request: Request, error: ArenaError) -> Response:
        status, code = statuses.get(type(error), (422, "refused"))
        return _refusal(status, code, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        lines = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
        return _refusal(422, "bad-request", "; ".join(lines))


@router.get("/healthz")
async def health(scheduler: TheScheduler) -> Health:
    """What is served here."""
    base = scheduler.base
    active, waiting = scheduler.load
    return Health(
        model=base.ref,
        revision=base.revision,
        model_digest=base.digest,
        dtype=str(base.dtype).removeprefix("torch."),
        device=str(base.device),
        adapters=tuple(about.name for about in scheduler.adapters()),
        active=active,
        waiting=waiting,
    )


@router.get("/adapters")
async def adapters(scheduler: TheScheduler) -> tuple[Adapter, ...]:
    """What new requests may use."""
    return scheduler.adapters()


@router.post("/adapters")
async def load(scheduler: TheScheduler, body: LoadAdapter) -> Response:
    """Load an adapter while others generate."""
    if body.name == BASE:
        raise UnfitAdapterError(f"{BASE} is the base model's own name")
    new = await asyncio.to_thread(read_adapter, body)
    old = scheduler.known(body.name)
    if old is not None and old != new.about:
        text = f"{body.name} is loaded with digest {old.digest}; a name's meaning never changes"
        return _refusal(409, "name-taken", text)
    if old is None:
        await asyncio.wrap_future(scheduler.load_adapter(new))
    return JSONResponse(new.about.model_dump(mode="json"), status_code=200 if old else 201)


@router.delete("/adapters/{name:path}")
async def unload(scheduler: TheScheduler, name: str) -> Response:
    """Let an adapter go once its last completion has ended."""
    if scheduler.known(name) is None:
        raise UnknownAdapterError(f"adapter {name} is not loaded")
    scheduler.unload_adapter(name)
    return Response(status_code=204)


@router.post("/generate")
async def generate(scheduler: TheScheduler, body: Generate) -> Generated:
    """Complete every prompt and conversation."""
    started = time.perf_counter()
    render = _renderer(scheduler, body.adapter, raw=body.raw)
    inputs = [*map(render, body.prompts), *map(render, body.messages)]
    tickets: list[Ticket] = []
    try:
        for number, ids in enumerate(inputs):
            tickets.append(Ticket(scheduler, body.adapter, ids, _seeded(body.params, number), body.logprobs))
        results = [await ticket.whole() for ticket in tickets]
    finally:
        for ticket in tickets:
            ticket.cancel()
    return Generated(results=tuple(results), seconds=time.perf_counter() - started)


@router.post("/generate_stream")
async def generate_stream(scheduler: TheScheduler, body: GenerateOne) -> Response:
    """Complete one, piece by piece."""
    ids = _renderer(scheduler, body.adapter, raw=body.raw)(body.messages or body.prompt or "")
    ticket = Ticket(scheduler, body.adapter, ids, body.params, body.logprobs)

    async def lines() -> AsyncIterator[bytes]:
        async for piece in ticket.pieces():
            yield piece.model_dump_json(exclude_none=True).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.post("/logprobs")
async def logprobs(scheduler: TheScheduler, body: Measure) -> Measured:
    """Measure given tokens, for probes."""
    future = scheduler.logprobs(body.adapter, body.prompt_ids, body.token_ids)
    found: list[float] = await asyncio.wrap_future(future)
    return Measured(logprobs=tuple(found))


@router.post("/prove")
async def prove(scheduler: TheScheduler, body: Prove) -> Proved:
    """Show that a name answers by the weights that were trained, before anybody is answered by it."""
    if scheduler.known(body.adapter) is None:
        raise UnknownAdapterError(f"adapter {body.adapter} is not loaded")
    if body.prompt is None:
        return await asyncio.to_thread(scheduler.prove, body.adapter, body.digest, again=body.again)
    ids = _renderer(scheduler, body.adapter, raw=False)(body.prompt)
    ticket = Ticket(scheduler, body.adapter, ids, ONE_TOKEN)  # made while the proof is
    try:
        proved = await asyncio.to_thread(scheduler.prove, body.adapter, body.digest, again=body.again)
        said = await ticket.whole()
    finally:
        ticket.cancel()
    return proved.model_copy(update={"tokens": said.finish.completion_tokens})


def _renderer(
    scheduler: Generator, adapter: str, *, raw: bool
) -> Callable[[str | tuple[Message, ...]], tuple[int, ...]]:
    """How this adapter's experiment turns text into tokens."""
    base, about = scheduler.base, scheduler.known(adapter)
    template = about.template if about else None

    def render(item: str | tuple[Message, ...]) -> tuple[int, ...]:
        if not isinstance(item, str):
            return message_ids(base, template, item)
        return raw_ids(base, item) if raw else prompt_ids(base, template, item)

    return render


def _seeded(params: Params, number: int) -> Params:
    """Give every prompt of one request a stream of its own."""
    if params.seed is None or number == 0:
        return params
    return params.model_copy(update={"seed": key(params.seed, "prompt", number)})


def _refusal(status: int, code: str, message: str) -> JSONResponse:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse(
        ErrorBody(code=code, message=message).model_dump(), status_code=status, headers=headers
    )
