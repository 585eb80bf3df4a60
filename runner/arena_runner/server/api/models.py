"""`/api/v1/models`: base models from the server's models folder, for the worker whose job needs them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.services import claims, hosts, jobs, model_files
from arena_runner.server.world import World

router = APIRouter(prefix="/api/v1/models", tags=["workers"])

Worker = Annotated[Identity, caller(Role.WORKER)]


@router.get("/{reference:path}", response_class=FileResponse)
def get_model(world: TheWorld, caller: Worker, reference: str) -> Response:
    """`ID@REVISION/`: the listing of a model; `ID@REVISION/FILE`: a file, also in ranges.

    A folder holds one revision; which one was asked for matters only where the hub is asked.
    """
    name, at, rest = reference.partition("@")
    _, slash, path = rest.partition("/")
    if not at or not slash:
        raise not_found(f"model reference {reference!r}: expected ID@REVISION/ or ID@REVISION/FILE;")
    _check_needs(world, caller, name)
    if not path:
        found = model_files.listing(world.home.models, name)
        return Response(found.model_dump_json(), media_type="application/json")
    whole, described = model_files.file(world.home.models, name, path)
    return FileResponse(
        whole, media_type="application/octet-stream", headers={"ETag": f'"{described.digest}"'}
    )


def _check_needs(world: World, caller: Identity, name: str) -> None:
    """A worker gets the model of the job it holds, a serving host those it should serve."""
    if caller.role is not Role.WORKER or hosts.may_have_model(world, caller, name):
        return
    with world.store.read() as session:
        model = jobs.model_of(claims.check_holds(session, caller), world)
    if model is None or model.id != name:
        raise RefusedError(403, "forbidden", f"model {name} is not the one of run {caller.run_id}")
