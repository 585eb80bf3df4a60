"""A manifest to begin with."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import JsonValue

from arena_runner.server.api.arena.door import Sent, Text, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.services import run_spec

router = new_router()


class Wanted(Sent):
    """What the manifest is for; the client writes these names in camel case."""

    algorithm: str
    gymEnv: Text = None  # noqa: N815 - the client's name
    gymEnvEntrypoint: Text = None  # noqa: N815 - the client's name
    datasetName: Text = None  # noqa: N815 - the client's name
    pretrainedModelNameOrPath: Text = None  # noqa: N815 - the client's name
    field: Text = None


@router.get("/experiments/run-spec/default")
def default(_caller: Viewer, wanted: Annotated[Wanted, Query()]) -> JsonValue:
    """The defaults of an algorithm, or one section of them."""
    spec = run_spec.default(
        wanted.algorithm,
        environment=wanted.gymEnv,
        entrypoint=wanted.gymEnvEntrypoint,
        dataset=wanted.datasetName,
        model=wanted.pretrainedModelNameOrPath,
    )
    return run_spec.section(spec, wanted.field) if wanted.field else spec
