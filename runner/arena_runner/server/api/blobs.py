"""`/api/v1/blobs`: content-addressed files, streamed both ways."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse
from sqlalchemy import String, cast, select

from arena_runner.server.api.door import TheWorld, caller, world_of
from arena_runner.server.artifacts import DIGEST
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import claims, hosts, jobs
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

OCTETS = "application/octet-stream"

router = APIRouter(prefix="/api/v1/blobs", tags=["blobs"])

Digest = Annotated[str, Path(json_schema_extra={"pattern": DIGEST.pattern})]
Anyone = Annotated[Identity, caller(Role.VIEWER, Role.WORKER)]
Reader = Annotated[Identity, caller(Role.VIEWER, Role.WORKER)]
Writer = Annotated[Identity, caller(Role.EDITOR, Role.WORKER)]


BYTES = {"content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}


@router.head(
    "/{digest}",
    response_class=Response,
    responses={404: {"description": "It is not here"}, 422: {"description": "Its bytes are others by now"}},
)
def has_blob(
    world: TheWorld,
    caller: Anyone,
    digest: Digest,
    verify: Annotated[
        bool, Query(description="read every byte, and see whether it is still what its name says")
    ] = False,
) -> Response:
    """Whether the blob is here, and how large it is."""
    _check_worker_holds(world, caller)
    path = world.blobs.path(digest)
    if not path.is_file():
        return Response(status_code=404)
    if verify and caller.role == Role.VIEWER:
        _check_viewer_may_read(world, digest)
    if verify and not world.blobs.intact(digest):
        return Response(status_code=422)
    return Response(headers={"Content-Length": str(path.stat().st_size), "Content-Type": OCTETS})


@router.get("/{digest}", response_class=FileResponse, responses={200: BYTES})
def get_blob(world: TheWorld, caller: Reader, digest: Digest) -> Response:
    """The blob's bytes; a worker gets those of its own job only, who may only look those of the state he sees."""
    if caller.role == Role.WORKER:
        _check_worker_may_read(world, caller, digest)
    path = world.blobs.existing(digest)
    if caller.role == Role.VIEWER:
        _check_viewer_may_read(world, digest)
    return FileResponse(path, media_type=OCTETS)


@router.put(
    "/{digest}",
    response_class=Response,
    responses={200: {"description": "It was here"}, 201: {"description": "It is new"}},
    openapi_extra={"requestBody": {"required": True, **BYTES}},
)
async def put_blob(request: Request, caller: Writer, digest: Digest) -> Response:
    """Store a blob: 201 when it is new, 200 when it was here, 422 when the bytes are others."""
    blobs = world_of(request).blobs
    await asyncio.to_thread(_check_worker_holds, world_of(request), caller)
    if blobs.has(digest):
        return Response(status_code=200)
    incoming = blobs.receive(digest)
    try:
        async for chunk in request.stream():
            incoming.write(chunk)
        await asyncio.to_thread(incoming.commit)  # it waits for the disk
    finally:
        incoming.abandon()  # of no effect once committed
    return Response(status_code=201)


def _check_worker_may_read(world: World, caller: Identity, digest: str) -> None:
    with world.store.read() as session:
        if hosts.may_read(session, world, caller, digest):
            return
        allowed = jobs.digests(claims.check_holds(session, caller))
    if digest not in allowed:
        raise RefusedError(403, "forbidden", f"blob {digest} is no part of run {caller.run_id}")


def _check_worker_holds(world: World, caller: Identity) -> None:
    """A worker whose job is over, or was never given, neither asks nor stores."""
    if caller.role == Role.WORKER:
        with world.store.read() as session:
            claims.check_holds(session, caller)


def _check_viewer_may_read(world: World, digest: str) -> None:
    """A plan compares code and rows with those of resources; adapters and resume states are not for looking."""
    named = cast(ResourceRow.spec, String).contains(digest, autoescape=True)
    with world.store.read() as session:
        found = session.scalar(select(ResourceRow.id).where(~ResourceRow.retired, named).limit(1))
    if found is None:
        raise RefusedError(403, "forbidden", f"blob {digest} is no part of a resource")
