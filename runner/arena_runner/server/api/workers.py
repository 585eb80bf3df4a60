"""`/api/v1/workers`: the pull protocol. A worker speaks to nothing but these routes and the blobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from arena_gitops.spec.wire import Claim, ClaimRequest, EventBatch, EventReceipt
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.services import jobs

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])

Worker = Annotated[Identity, caller(Role.WORKER)]


@router.post("/claim", response_model=Claim, responses={204: {"description": "nothing to do"}})
def claim(world: TheWorld, caller: Worker, body: ClaimRequest) -> Response:
    """A job, or 204 when there is nothing to do."""
    wanted = body.model_copy(update={"run_id": caller.run_id}) if body.run_id is None else body
    caller.check_run(wanted.run_id)
    found = jobs.claim(world, wanted)
    if found is None:
        return Response(status_code=204)
    return Response(found.model_dump_json(), media_type="application/json")


@router.post("/jobs/{run_id}/{segment}/events")
def report(world: TheWorld, caller: Worker, run_id: str, segment: int, body: EventBatch) -> EventReceipt:
    """Take a segment's next events; an empty batch is a heartbeat. 409 `fenced` when the job is another's."""
    caller.check_run(run_id)
    return jobs.report(world, run_id, segment, body)
