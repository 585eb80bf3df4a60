"""`/api/v1/workers`: the pull protocol. A worker speaks to nothing but these routes, the blobs and the models."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from arena_gitops.spec.wire import Claim, ClaimRequest, EventBatch, EventReceipt
from arena_gitops.spec.worker import (
    HandBack,
    HostOrders,
    HostReport,
    WorkerGoodbye,
    WorkerHello,
    WorkerStatus,
    WorkerWelcome,
)
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import not_found
from arena_runner.server.services import claims, hosts, jobs, notes, run_log, runs, workers

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])

Viewer = Annotated[Identity, caller(Role.VIEWER)]
Worker = Annotated[Identity, caller(Role.WORKER)]


@router.get("")
def get_workers(world: TheWorld, _caller: Viewer) -> tuple[WorkerStatus, ...]:
    """Every worker: its tier, what it does, when it was heard of last."""
    with world.store.read() as session:
        return workers.listing(session, world)


@router.post("/register")
def register(world: TheWorld, caller: Worker, body: WorkerHello) -> WorkerWelcome:
    """Take in a worker of another machine; 426 when it has another version, 403 when the tier is not its token's."""
    caller.check_run(None)
    return workers.register(world, caller, body)


@router.post("/hosts")
def host(world: TheWorld, caller: Worker, body: HostReport) -> HostOrders:
    """Take the report of a serving host; what it should run. A repeat is harmless."""
    caller.check_run(None)
    return hosts.report(world, caller, body)


@router.get(
    "/hosts/{host_id}/line",
    response_class=StreamingResponse,
    responses={204: {"description": "nobody asks; come again"}},
)
async def hold_line(world: TheWorld, caller: Worker, request: Request, host_id: str) -> Response:
    """Held open by a serving host that only dials out, until somebody asks it: then what is asked, as it comes."""
    hosts.check_own(world, caller, host_id)
    dialled = world.links.hosts.dialled
    dialled.forget(lambda name: world.links.hosts.of(name) is None)
    call = await dialled.next(host_id, world.draining.is_set)
    if call is None:
        return Response(status_code=204)
    if await request.is_disconnected():
        call.writer.close()
        return Response(status_code=204)
    asked = dialled.down(host_id, call, world.draining.is_set)
    return StreamingResponse(asked, media_type="application/octet-stream", headers={"x-line": call.key})


@router.post("/hosts/{host_id}/line/{key}", status_code=204)
async def answer_line(world: TheWorld, caller: Worker, request: Request, host_id: str, key: str) -> Response:
    """What the host answers to it, as it comes."""
    hosts.check_own(world, caller, host_id)
    if not await world.links.hosts.dialled.up(host_id, key, request.stream()):
        raise not_found(f"line {key}")
    return Response(status_code=204)


@router.post("/leave", status_code=204)
def leave(world: TheWorld, caller: Worker, body: WorkerGoodbye) -> Response:
    """Forget a worker that ends."""
    workers.leave(world, caller, body.worker_id)
    return Response(status_code=204)


@router.post("/claim", response_model=Claim, responses={204: {"description": "nothing to do"}})
def claim(world: TheWorld, caller: Worker, body: ClaimRequest) -> Response:
    """A job and a token for it, or 204 when there is nothing to do."""
    if caller.run_id is None:
        wanted = workers.admit(world, caller, body)
    else:
        wanted = body.model_copy(update={"run_id": body.run_id or caller.run_id})
        caller.check_run(wanted.run_id)
        with world.store.read() as session:
            claims.check_asks(session, caller)
    found = jobs.claim(world, wanted, caller)
    if found is None:
        return Response(status_code=204)
    if caller.run_id is None:
        with world.store.read() as session:
            told = notes.of(runs.get(session, found.job.run_id), world)
        run_log.note(world, found.job.run_id, (f"worker {body.worker_id} begins", *told))
    return Response(found.model_dump_json(), media_type="application/json")


@router.post("/jobs/{run_id}/{segment}/events")
def report(world: TheWorld, caller: Worker, run_id: str, segment: int, body: EventBatch) -> EventReceipt:
    """Take a segment's next events; an empty batch is a heartbeat. 409 `fenced` when the job is another's."""
    with world.store.read() as session:
        claims.check_speaks(session, caller, run_id, body.fence)
    return jobs.report(world, run_id, segment, body)


@router.post("/jobs/{run_id}/{segment}/hand-back", status_code=204)
def hand_back(world: TheWorld, caller: Worker, run_id: str, segment: int, body: HandBack) -> Response:
    """Queue the job again: its worker has to go, or could not go on with it."""
    with world.store.read() as session:
        claims.check_speaks(session, caller, run_id, body.fence)
    jobs.hand_back(world, run_id, segment, body)
    return Response(status_code=204)
