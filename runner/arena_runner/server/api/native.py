"""`/api/v1`: the native API as `arena_gitops.spec.wire` has it in its table, apart from blobs and workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from sqlalchemy import select

from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.lease import FENCE
from arena_gitops.spec.resource import KINDS, NAME_PATTERN, Address, Frozen
from arena_gitops.spec.wire import (
    Owner,
    PutResource,
    ResourceDocument,
    ResumeRequest,
    Revision,
    RollbackRequest,
    StateDocument,
    StoredEvent,
    Tier,
)
from arena_runner.server.api.described import Ndjson, header
from arena_runner.server.api.door import TheWorld, caller, etag_header
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import deployments, holds, imperative, resources, rollbacks, runs, states
from arena_runner.server.store.tables import EventRow
from arena_runner.server.world import World

MOST = 2**53
"""Numbers in a query are numbers that every client can write."""
LAST_EVENT = 2**31 - 1
"""No event of a run has a greater index: PostgreSQL compares with none, and the answer has begun by then."""
EVENTS_AT_ONCE = 1000
CHUNK = 1 << 20

router = APIRouter(prefix="/api/v1", tags=["native"])

Viewer = Annotated[Identity, caller(Role.VIEWER)]
Editor = Annotated[Identity, caller(Role.EDITOR)]
Name = Annotated[str, Query(pattern=NAME_PATTERN)]
Kind = Annotated[str, Path(json_schema_extra={"enum": list(KINDS)})]
Named = Annotated[str, Path(json_schema_extra={"pattern": NAME_PATTERN})]
"""Said, not checked here: an address that is none has a message of its own."""


class RetireQuery(Frozen):
    """Whose resource is retired, and how: `retire` keeps its data, `purge` deletes what nothing else uses."""

    stack: str
    namespace: str = "main"
    mode: Literal["retire", "purge"] = "retire"


IF_MATCH = header("If-Match", "etag of the resource as the caller knows it; absent: it must not exist")
FENCE_HEADER = header(FENCE, "fence of the lease under which the write is made")
KEY = header("Idempotency-Key", "a repeat with the same key and body gets the same answer for 30 days")


@router.get(
    "/state",
    response_model=StateDocument,
    responses={304: {"description": "The caller has it already"}},
    openapi_extra={
        "parameters": [
            header("If-None-Match", "etag of the state the caller has"),
            header("Cache-Control", "`no-cache`: ask MLflow what people's aliases mean now"),
        ]
    },
)
def get_state(
    request: Request, world: TheWorld, _caller: Viewer, stack: str, namespace: Name = "main"
) -> Response:
    """Everything managed by one stack in one namespace; 304 when the caller has it already.

    With `Cache-Control: no-cache` MLflow is asked what people's aliases mean now.
    """
    owner = Owner(stack=stack, namespace=namespace)
    asked = "no-cache" in request.headers.get("cache-control", "")
    choices = deployments.choices(world, owner) if asked else {}
    answer = states.build(world, owner, choices) if choices else states.current(world, owner)
    headers = {"ETag": f'"{answer.etag}"', "Cache-Control": "no-cache"}
    if etag_header(request, "if-none-match") == answer.etag:
        return Response(status_code=304, headers=headers)
    return Response(answer.body, media_type="application/json", headers=headers)


@router.put(
    "/resources/{kind}/{name}",
    dependencies=[caller(Role.EDITOR)],
    openapi_extra={"parameters": [IF_MATCH, KEY, FENCE_HEADER]},
)
def put_resource(
    request: Request, world: TheWorld, kind: Kind, name: Named, body: PutResource
) -> ResourceDocument:
    """Make a resource so."""
    imperative.check_stack(body.owner)
    key = request.headers.get("idempotency-key")
    put = resources.Put(_address(kind, name), body, etag_header(request, "if-match"), key, _fence(request))
    return resources.put(world, put)


@router.delete(
    "/resources/{kind}/{name}",
    status_code=204,
    dependencies=[caller(Role.EDITOR)],
    openapi_extra={"parameters": [IF_MATCH, FENCE_HEADER]},
)
def delete_resource(
    request: Request, world: TheWorld, kind: Kind, name: Named, query: Annotated[RetireQuery, Query()]
) -> Response:
    """Retire a resource; its data stays, unless `mode=purge` deletes it for good."""
    owner = Owner(stack=query.stack, namespace=query.namespace)
    imperative.check_stack(owner)
    etag = etag_header(request, "if-match")
    purge = query.mode == "purge"
    resources.retire(world, _address(kind, name), owner, etag, fence=_fence(request), purge=purge)
    return Response(status_code=204)


@router.get("/tiers")
def get_tiers(world: TheWorld, _caller: Viewer) -> tuple[Tier, ...]:
    """The compute classes of this server."""
    return world.tiers.tiers


@router.get("/runs/{run_id}")
def get_run(world: TheWorld, _caller: Viewer, run_id: str) -> RunStatus:
    """A run's newest status."""
    with world.store.read() as session:
        return runs.status(session, world, run_id)


@router.get(
    "/runs/{run_id}/events",
    response_class=Ndjson,
    responses={200: {"model": StoredEvent, "description": "One a line"}},
)
def get_events(
    world: TheWorld, _caller: Viewer, run_id: str, after: Annotated[int, Query(ge=0, le=MOST)] = 0
) -> Response:
    """A run's events with index > `after`, one JSON object a line; ends where the history ends for now."""
    with world.store.read() as session:
        runs.get(session, run_id)
    return Ndjson(_events(world, run_id, min(after, LAST_EVENT)))


@router.get("/runs/{run_id}/logs", response_class=PlainTextResponse)
def get_logs(
    world: TheWorld, _caller: Viewer, run_id: str, after: Annotated[int, Query(ge=0, le=MOST)] = 0
) -> Response:
    """What the run's workers printed, one after the other, from byte `after` on."""
    with world.store.read() as session:
        runs.get(session, run_id)
    path = world.home.run(run_id) / "logs" / "worker.log"
    return StreamingResponse(_text(path, after), media_type="text/plain; charset=utf-8")


@router.post("/runs/{run_id}/stop")
def stop_run(world: TheWorld, caller: Editor, run_id: str) -> RunStatus:
    """Ask a run to stop at its next iteration's end; one that has ended stays as it is."""
    with world.store.write() as session:
        runs.stop(runs.get(session, run_id), "user", world.clock(), by=caller.subject)
        session.flush()
        answer = runs.status(session, world, run_id)
    world.bell.ring()
    return answer


@router.get("/deployments/{deployment}/revisions")
def get_revisions(
    world: TheWorld, _caller: Viewer, deployment: str, namespace: Name = "main"
) -> tuple[Revision, ...]:
    """Every rollout of a deployment, oldest first."""
    with world.store.read() as session:
        return rollbacks.revisions(session, namespace, deployment)


@router.post("/deployments/{deployment}/rollback")
def roll_back(world: TheWorld, editor: Editor, deployment: str, body: RollbackRequest) -> ResourceDocument:
    """Hold a deployment at an earlier revision."""
    return rollbacks.rollback(world, deployment, body.owner, body.to, editor.subject)


@router.post("/deployments/{deployment}/resume")
def resume(world: TheWorld, _caller: Editor, deployment: str, body: ResumeRequest) -> ResourceDocument:
    """End a hold."""
    return rollbacks.resume(world, deployment, body.owner)


@router.post("/experiments/{experiment}/resume")
def resume_run(world: TheWorld, editor: Editor, experiment: str, body: ResumeRequest) -> ResourceDocument:
    """Let the run of an experiment that was stopped or has failed go on from its last saved state."""
    return holds.resume(world, experiment, body.owner, editor.subject)


def _text(path: File, after: int) -> Iterator[bytes]:
    """What a log holds; it may grow while it is read."""
    if path.is_file():
        with path.open("rb") as file:
            file.seek(after)
            while chunk := file.read(CHUNK):
                yield chunk


def _address(kind: str, name: str) -> Address:
    try:
        return Address.parse(f"{kind}/{name}")
    except ValueError as problem:
        raise RefusedError(422, "bad-address", f"{problem}; kinds are {', '.join(KINDS)}") from problem


def _fence(request: Request) -> int | None:
    """The fence of the lease under which a write is made."""
    text = request.headers.get(FENCE)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise RefusedError(422, "bad-fence", f"{FENCE}: {text!r} is no number")
    return int(text)


def _events(world: World, run_id: str, after: int) -> Iterator[bytes]:
    while True:
        with world.store.read() as session:
            query = select(EventRow).where(EventRow.run_id == run_id, EventRow.position > after)
            rows = list(session.scalars(query.order_by(EventRow.position).limit(EVENTS_AT_ONCE)))
        for row in rows:
            stored = StoredEvent.model_validate(
                {"index": row.position, "segment": row.segment, "event": row.body}
            )
            yield stored.model_dump_json().encode() + b"\n"
        if len(rows) < EVENTS_AT_ONCE:
            return
        after = rows[-1].position
