"""`POST /api/v1/checks`: run an experiment's checks in this server's sandbox, one verdict a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Response

from arena_gitops.spec.job import HubDataset, JobInputs
from arena_gitops.spec.wire import CheckLine, CheckRequest, CheckResult
from arena_runner.checks import run_checks, summarise
from arena_runner.checks.forecast import Sampler, Sampling, in_a_process
from arena_runner.checks.run import Hub
from arena_runner.server import kept_checks, profiles
from arena_runner.server.api.described import Ndjson
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import secrets, split_files
from arena_runner.server.services.jobs import mapped_model
from arena_runner.server.world import World

router = APIRouter(prefix="/api/v1", tags=["native"])


@router.post(
    "/checks", response_class=Ndjson, responses={200: {"model": CheckLine, "description": "One a line"}}
)
def checks(
    world: TheWorld, _caller: Annotated[Identity, caller(Role.EDITOR)], body: CheckRequest
) -> Response:
    """Stream every verdict, then a summary; the blobs must have been sent before."""
    missing = world.blobs.missing(_digests(body.inputs))
    if missing:
        raise RefusedError(422, "missing-blobs", f"send these first: {', '.join(missing)}")

    def lines() -> Iterator[bytes]:
        results: list[CheckResult] = []
        checked = run_checks(
            body,
            world.blobs.existing,
            stored=secrets.names(world),
            sampler=_sampler(world),
            models=world.home.models,
            hub=_hub(world),
            profiles=profiles.known(world),
        )
        for result in checked:
            results.append(result)
            yield result.model_dump_json().encode() + b"\n"
        kept_checks.keep(world, body, results)
        yield summarise(results).model_dump_json().encode() + b"\n"

    return Ndjson(lines())


def _sampler(world: World) -> Sampler:
    """Asks the base model that this server would train."""
    ask = in_a_process(world.home.models)

    def mapped(asked: Sampling) -> list[list[str]]:
        return ask(asked.model_copy(update={"model": mapped_model(asked.model, world)}))

    return mapped


def _hub(world: World) -> Hub:
    """Brings rows of the hub to this server, where the worker will read them, too."""

    def files(wanted: HubDataset) -> Sequence[Path]:
        return split_files.awaited(world.home.splits, world.downloads, world.settings, wanted)

    return files


def _digests(inputs: JobInputs) -> list[str]:
    found = list(inputs.reward.files.values()) if inputs.reward else []
    found += inputs.environment.files.values() if inputs.environment else []
    if inputs.dataset and inputs.dataset.digest:
        found.append(inputs.dataset.digest)
    return found
