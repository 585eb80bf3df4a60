"""Datasets: rows that are sent along, or rows on the hub."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile

from arena_gitops.spec.job import DatasetCategory, DatasetInput
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
    """Registered datasets; `search` looks for a part of their names."""
    with world.store.read() as session:
        rows = imperative.living(session, "dataset")
    wanted = (search or "").lower()
    return [
        _row(row)
        for row in rows
        if (name is None or imperative.slug(name) == row.name) and wanted in json.dumps(_row(row)).lower()
    ]


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
    imperative.retire(world, "dataset", body.name)
    return {"name": body.name, "deleted": True}


def _create(world: World, form: FormData) -> dict[str, Any]:
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str) and value}
    files = [
        Upload(f.filename or "rows.csv", f.file) for f in form.getlist("file") if isinstance(f, UploadFile)
    ]
    name = fields.get("name", "")
    source = _source(world, datasets.address(name), fields, files)
    document, said = datasets.create(world, name, fields.get("description", ""), source)
    return {
        "name": name,
        "id": document.name,
        "category": source.category,
        "is_ready": True,
        "uploaded": source.digest is not None,
        "message": said,
    }


def _source(world: World, address: str, fields: dict[str, str], files: list[Upload]) -> DatasetInput:
    common = {"address": address, "category": _category(fields), "column_mapping": _mapping(fields)}
    hub, split = fields.get("hf_dataset_name"), fields.get("hf_split")
    if bool(files) == bool(hub):
        message = "give either files (--file) or a dataset of the hub (--hf-dataset), and not both"
        raise RefusedError(422, "bad-request", message)
    if hub:
        place = {"id": hub, "config": fields.get("hf_config"), "split": split or "train"}
        return datasets.parse({**common, "hf": place})
    datasets.parse({**common, "digest": "sha256:" + "0" * 64})  # nothing is kept for fields that are wrong
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


def _row(row: ResourceRow) -> dict[str, Any]:
    hub = row.spec.get("hf") or {}
    return {
        "name": imperative.shown(row),
        "hf_dataset_id": hub.get("id"),
        "category": row.spec["category"],
        "column_mapping": row.spec["column_mapping"],
        "description": row.spec.get("description") or "",
        "managed_by": row.stack,
        "id": row.name,
    }
