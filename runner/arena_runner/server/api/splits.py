"""`/api/v1/splits`: the rows on the hub that a worker's job trains on. Which those are, the job says, not the caller."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from arena_gitops.spec.job import HubDataset, JobInputs
from arena_gitops.spec.worker import SplitListing
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import not_found
from arena_runner.server.services import claims, split_files
from arena_runner.server.world import World

router = APIRouter(prefix="/api/v1/splits", tags=["workers"])

Worker = Annotated[Identity, caller(Role.WORKER)]


@router.get("/")
def list_split(world: TheWorld, caller: Worker) -> SplitListing:
    """The files of the job's split; 503 while they come from the hub."""
    return split_files.listing(world.home.splits, world.downloads, world.settings, _wanted(world, caller))


@router.get("/{path:path}", response_class=FileResponse)
def get_split_file(world: TheWorld, caller: Worker, path: str) -> Response:
    """One file of that listing, also in ranges."""
    whole, described = split_files.file(world.home.splits, _wanted(world, caller), path)
    return FileResponse(
        whole, media_type="application/octet-stream", headers={"ETag": f'"{described.digest}"'}
    )


def _wanted(world: World, caller: Identity) -> HubDataset:
    with world.store.read() as session:
        run = claims.check_holds(session, caller).run
        dataset = JobInputs.model_validate(run.inputs).dataset
    if dataset is None or dataset.hf is None or dataset.digest is not None:
        raise not_found(f"a hub's dataset of run {run.id}")
    return dataset.hf
