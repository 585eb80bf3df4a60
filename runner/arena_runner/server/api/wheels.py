"""`/api/v1/wheels`: what the user code of a worker's job requires. Which packages that are, the job says, not the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from arena_gitops.spec.job import JobInputs
from arena_gitops.spec.worker import WheelListing, WheelTarget
from arena_runner.sandbox.libraries import complete
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import not_found
from arena_runner.server.services import claims, wheel_files
from arena_runner.server.world import World

router = APIRouter(prefix="/api/v1/wheels", tags=["workers"])

Worker = Annotated[Identity, caller(Role.WORKER)]
Target = Annotated[WheelTarget, Query()]


@router.get("/")
def list_wheels(world: TheWorld, caller: Worker, target: Target) -> WheelListing:
    """The wheels for this interpreter; 503 while they are being resolved."""
    return wheel_files.listing(world.home.wheels, world.resolvers, _required(world, caller), target)


@router.get("/{path}", response_class=FileResponse)
def get_wheel(world: TheWorld, caller: Worker, target: Target, path: str) -> Response:
    """One wheel of that listing, also in ranges."""
    whole, described = wheel_files.file(world.home.wheels, _required(world, caller), target, path)
    return FileResponse(
        whole, media_type="application/octet-stream", headers={"ETag": f'"{described.digest}"'}
    )


def _required(world: World, caller: Identity) -> tuple[str, ...]:
    with world.store.read() as session:
        run = claims.check_holds(session, caller).run
        inputs = JobInputs.model_validate(run.inputs)
    required = inputs.reward.requirements if inputs.reward else ()
    if not required and inputs.environment:
        required = complete(inputs.environment)
    if not required:
        raise not_found(f"a requirement of run {run.id}")
    return required
