"""Datasets: rows that are sent along, or rows on the hub."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile

from arena_gitops.spec.job import DatasetCategory, DatasetInput
from arena_runner.server import hub
from arena_runner.server.api.arena.door import Editor, Named, Text, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import datasets, imperative, uploads
from arena_runner.server.services.uploads import Upload
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

MAX_FILES = 10_000

router = new_router()


@router.get("/datasets")
def listed(world: TheWorld, _caller: Viewer, name: Text = None, search: Text = None) -> list[dict[str, Any]]:
    """Registered datasets; with `search`, what the hub has instead."""
    if search:
        return hub.search(world.settings, search)
    with world.store.read() as session:
        rows = imperative.living(session, "dataset")
    return [_row(world, row) for row in rows if name is None or imperative.slug(name) == row.name]


@router.get("/datasets/exists")
def exists(world: TheWorld, _caller: Viewer, name: str) -> dict[str, Any]:
    """Whether there is a dataset of this name."""
    with world.store.read() as session:
        row = imperative.find(session, "dataset", name)
    return {"exists": True, "id": row.name, "datasetType": row.spec["category"]} if row else {"exists": False}


@router.post("/datasets/create")
async def create(request: Request, world: TheWorld, _caller: Editor) -> dict[str, Any]:
    """Multipart: fields, and files named `file`, one or several."""
    async with request.form(max_files=MAX_FILES) as form:
        return await asyncio.to_thread(_create, world, form)


@router.delete("/datasets/delete")
def delete(world: TheWorld, _caller: Editor, body: Named) -> dict[str, Any]:
    """Forget a dataset; runs that use it keep its rows."""
    datasets.delete(world, body.name)
    return {"name": body.name, "deleted": True}


def _create(world: World, form: FormData) -> dict[str, Any]:
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str) and value}
    files = [
        Upload(f.filename or "rows.csv", f.file) for f in form.getlist("file") if isinstance(f, UploadFile)
    ]
    name = fields.get("name", "")
    source = _source(world, datasets.address(name), fields, files)
    document, said = datasets.create(world, name, fields.get("description", ""), source)
    ready = datasets.readiness(world, document.name, source)
    return {
        "name": name,
        "id": document.name,
        "category": source.category,
        "is_ready": ready.ready,
        "uploaded": source.digest is not None,
        "status": ready.state,
        "message": said,
    }


def _source(world: World, address: str, fields: dict[str, str], files: list[Upload]) -> DatasetInput:
    common = {"address": address, "category": _category(fields), "column_mapping": _mapping(fields)}
    wanted, split = fields.get("hf_dataset_name"), fields.get("hf_split")
    if files and wanted:
        message = "give either files (--file) or a dataset of the hub (--hf-dataset), and not both"
        raise RefusedError(422, "bad-request", message)
    if wanted:
        place = {"id": wanted, "config": fields.get("hf_config"), "split": split or "train"}
        return datasets.parse({**common, "hf": place})
    empty = datasets.parse(common)  # nothing is kept for fields that are wrong
    if not files:
        return empty
    stored = uploads.store(world.blobs, files, config=fields.get("config"), split=split)
    return datasets.parse({**common, "digest": stored.digest, "format": stored.format})


def _category(fields: dict[str, str]) -> str:
    category = fields.get("category", "").lower()
    if category not in set(DatasetCategory):
        message = f"category is one of {', '.join(DatasetCategory)}, not {category or 'nothing'}"
        raise RefusedError(422, "bad-request", message)
    return category


def _mapping(fields: dict[str, str]) -> dict[str, Any]:
    text = fields.get("column_mapping", "")
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as problem:
        message = f"column_mapping is not JSON: {problem.msg} at column {problem.colno} of {text!r}"
        raise RefusedError(422, "bad-column-mapping", message) from problem
    if not isinstance(mapping, dict):
        raise RefusedError(422, "bad-column-mapping", f"column_mapping is an object, not {text!r}")
    return mapping


def _row(world: World, row: ResourceRow) -> dict[str, Any]:
    source = datasets.of_row(row)
    ready = datasets.readiness(world, row.name, source)
    return {
        "name": imperative.shown(row),
        "hf_dataset_id": source.hf.id if source.hf else None,
        "category": row.spec["category"],
        "column_mapping": row.spec["column_mapping"],
        "description": row.spec.get("description") or "",
        "is_ready": ready.ready,
        "status": ready.state,
        "message": ready.message,
        "managed_by": row.stack,
        "id": row.name,
    }
