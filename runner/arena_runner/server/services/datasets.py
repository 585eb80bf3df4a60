"""A dataset that a command creates: its columns and rows are looked at before it is kept."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from arena_gitops.spec.job import COLUMNS, DatasetCategory, DatasetInput
from arena_gitops.spec.wire import ResourceDocument
from arena_runner.checks.dataset import DatasetCheck
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World


def create(world: World, name: str, description: str, source: DatasetInput) -> tuple[ResourceDocument, str]:
    """Keep a dataset; gives it with what its check says. The same again is no error, another content is."""
    _check_roles(source)
    said = _check_rows(world, source) if source.digest else "its rows are read from the hub by each run"
    envelope = {"description": description, "labels": imperative.labels(name), "owner": None, "lifecycle": {}}
    spec = {**envelope, **source.model_dump(mode="json")}
    with world.store.read() as session:
        row = imperative.find(session, "dataset", name)
    if row is not None and of_row(row) != source:
        message = f"dataset {name!r} exists with other content; delete it first, or choose another name"
        raise RefusedError(409, "exists", message)
    return imperative.put(world, "dataset", name, spec), said


def address(name: str) -> str:
    """How a dataset of this name is called in jobs."""
    return f"dataset/{imperative.slug(name)}"


def of_row(row: ResourceRow) -> DatasetInput:
    """A stored dataset as jobs receive it."""
    return DatasetInput.model_validate({k: v for k, v in row.spec.items() if k in DatasetInput.model_fields})


def parse(fields: dict[str, Any]) -> DatasetInput:
    """A dataset from loose fields; 422 with what is wrong."""
    try:
        return DatasetInput.model_validate(fields)
    except ValidationError as problem:
        lines = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in problem.errors()]
        raise RefusedError(422, "bad-dataset", "; ".join(lines)) from problem


def _check_roles(source: DatasetInput) -> None:
    wanted = COLUMNS[DatasetCategory(source.category)]
    if set(source.column_mapping) != set(wanted):
        given = ", ".join(sorted(source.column_mapping)) or "nothing"
        message = f"a {source.category} dataset maps {', '.join(wanted)} to columns; the mapping has {given}"
        raise RefusedError(422, "bad-column-mapping", message)


def _check_rows(world: World, source: DatasetInput) -> str:
    results = list(DatasetCheck(source, world.blobs.existing(source.digest or "")).run())
    failed = [result.message for result in results if result.status == "fail"]
    if failed:
        raise RefusedError(422, "bad-rows", "; ".join(failed))
    return "; ".join(result.message for result in results if result.name != "columns")
