"""A dataset that a command creates: its columns and rows are looked at before it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from arena_gitops.spec.job import COLUMNS, DatasetCategory, DatasetInput
from arena_gitops.spec.wire import ResourceDocument
from arena_runner.checks.dataset import DatasetCheck
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import hub_rows, imperative, imports
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

NO_ROWS = "it has no rows yet: create it again with --file or --hf-dataset"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How the rows of a dataset stand: `ready`, `pending`, `failed` or `empty`."""

    state: str
    message: str

    @property
    def ready(self) -> bool:
        """Whether a run can begin."""
        return self.state == hub_rows.READY


def create(world: World, name: str, description: str, source: DatasetInput) -> tuple[ResourceDocument, str]:
    """Keep a dataset; gives it with what its check says. The same again is no error, another content is."""
    _check_roles(source)
    said = _check_rows(world, source) if source.digest else NO_ROWS
    envelope = {"description": description, "labels": imperative.labels(name), "owner": None, "lifecycle": {}}
    spec = {**envelope, **source.model_dump(mode="json")}
    with world.store.read() as session:
        row = imperative.find(session, "dataset", name)
    if row is not None and of_row(row) != source and not _empty(of_row(row)):
        message = f"dataset {name!r} exists with other content; delete it first, or choose another name"
        raise RefusedError(409, "exists", message)
    made = imperative.put(world, "dataset", name, spec)
    if source.hf is None:
        return made, said
    imports.ask(world, made.name, source.hf)
    return made, readiness(world, made.name, source).message


def delete(world: World, name: str) -> None:
    """Forget a dataset; runs that use it keep its rows. 404 when there is none."""
    imperative.retire(world, "dataset", name)
    imports.forget(world, imperative.slug(name))


def readiness(world: World, name: str, source: DatasetInput) -> Readiness:
    """Whether a dataset can be trained on."""
    if _empty(source):
        return Readiness("empty", NO_ROWS)
    with world.store.read() as session:
        row = hub_rows.find(session, name) if source.hf else None
    return Readiness(row.state, row.message) if row is not None else Readiness(hub_rows.READY, "")


def address(name: str) -> str:
    """How a dataset of this name is called in jobs."""
    return f"dataset/{imperative.slug(name)}"


def of_row(row: ResourceRow) -> DatasetInput:
    """A stored dataset as jobs receive it."""
    return hub_rows.job_input(row)


def parse(fields: dict[str, Any]) -> DatasetInput:
    """A dataset from loose fields; 422 with what is wrong."""
    try:
        return DatasetInput.model_validate(fields)
    except ValidationError as problem:
        lines = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in problem.errors()]
        raise RefusedError(422, "bad-dataset", "; ".join(lines)) from problem


def _empty(source: DatasetInput) -> bool:
    """Made of a name and columns only, as the published client may."""
    return source.digest is None and source.hf is None


def _check_roles(source: DatasetInput) -> None:
    wanted = COLUMNS[DatasetCategory(source.category)]
    if set(source.column_mapping) != set(wanted):
        given = ", ".join(sorted(source.column_mapping)) or "nothing"
        message = f"a {source.category} dataset maps {', '.join(wanted)} to columns; the mapping has {given}"
        raise RefusedError(422, "bad-column-mapping", message)


def _check_rows(world: World, source: DatasetInput) -> str:
    results = list(DatasetCheck(source, [world.blobs.existing(source.digest or "")]).run())
    failed = [result.message for result in results if result.status == "fail"]
    if failed:
        raise RefusedError(422, "bad-rows", "; ".join(failed))
    return "; ".join(result.message for result in results if result.name != "columns")
