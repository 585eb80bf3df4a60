"""Environments: code that is sent along, checked in the sandbox, and kept by version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.datastructures import FormData, UploadFile

from arena_runner.server import gymnasium_ids
from arena_runner.server.api.arena import stream
from arena_runner.server.api.arena.door import Editor, Sent, Text, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import environment_checks, environment_uploads, environments, imperative
from arena_runner.server.services.environments import Version
from arena_runner.server.services.remarks import Remark
from arena_runner.server.world import World

SIDE_LIMIT = 1 << 20
"""Of a requirements file or a configuration."""
NAMED_AT_MOST = 5

router = new_router("/api/cli/v1/environments")


class Which(Sent):
    """Which version; the latest when none is named."""

    name: str
    version: Text = None


class Checked(Which):
    """Which version to check, and how."""

    do_rollouts: bool = False
    entrypoint: Text = None


class Copied(Which):
    """Which version to copy, and to what."""

    new_version_name: Annotated[str, Field(min_length=1, max_length=63)]


@router.get("")
def listed(
    world: TheWorld, _caller: Viewer, name: Text = None, *, include_arena: bool = False
) -> dict[str, dict[str, dict[str, bool]]]:
    """Every environment with its versions; with `include_arena`, the registered Gymnasium ids too."""
    with world.store.read() as session:
        rows = imperative.living(session, "environment")
        found = {imperative.shown(row): environments.versions(session, row) for row in rows}
    own = {title: {one.label: _flags(one) for one in some} for title, some in found.items()}
    if name is not None:
        same = [some for title, some in own.items() if imperative.slug(title) == imperative.slug(name)]
        own = {name: same[0]} if same else {}  # under the name that was asked for: the client looks for it
    registered = gymnasium_ids.registered() if include_arena else ()
    ready = {"validated": True, "profiled": False}
    return {one: {one.rpartition("-")[2]: ready} for one in registered if name in {None, one}} | own


@router.get("/exists")
def exists(world: TheWorld, _caller: Viewer, which: Annotated[Which, Query()]) -> dict[str, Any]:
    """Whether there is such an environment, and such a version of it."""
    try:
        with world.store.read() as session:
            found = environments.get(session, which.name, which.version)
    except RefusedError:
        return {"exists": False}
    return {"exists": True, "name": found.name, "version": found.label}


@router.get("/entrypoints")
def entrypoints(world: TheWorld, _caller: Viewer, which: Annotated[Which, Query()]) -> list[str]:
    """The classes that could be meant."""
    version = _version(world, which)
    there = environment_uploads.found(world.blobs, version.source.files)
    chosen = version.source.entrypoint
    return there if chosen is None or chosen in there else [chosen, *there]


@router.post("/create-and-validate")
async def create_and_validate(request: Request, world: TheWorld, _caller: Editor) -> StreamingResponse:
    """Multipart: fields, the archive, and two files that are empty when they are not given."""
    async with request.form() as form:
        version, rollouts, remarks = await asyncio.to_thread(_created, world, form)
    return stream.answer("validate", _with_remarks(world, version, remarks, rollouts=rollouts))


@router.post("/validate")
def validate(world: TheWorld, _caller: Editor, body: Checked) -> StreamingResponse:
    """Check a version again."""
    version = _version(world, body)
    if body.entrypoint and body.entrypoint != version.source.entrypoint:
        there = environment_uploads.found(world.blobs, version.source.files)
        chosen = environment_uploads.chosen(version.source.files, there, body.entrypoint)
        source = version.source.model_copy(update={"entrypoint": chosen})
        version = Version(version.name, version.label, source, version.description, version.language)
    return stream.answer("validate", environment_checks.validate(world, version, rollouts=body.do_rollouts))


@router.post("/profile")
def profile(world: TheWorld, _caller: Editor, body: Which) -> StreamingResponse:
    """Measure a version that was found valid."""
    return stream.answer("profile", environment_checks.profile(world, _version(world, body)))


@router.delete("/delete")
def delete(world: TheWorld, _caller: Editor, body: Which) -> dict[str, Any]:
    """Forget a version, or all of them."""
    environments.delete(world, body.name, body.version)
    return {"name": body.name, **({"version": body.version} if body.version else {}), "deleted": True}


@router.post("/duplicate")
def duplicate(world: TheWorld, _caller: Editor, body: Copied) -> dict[str, Any]:
    """The same content under another version."""
    source = environments.duplicate(world, body.name, body.version, body.new_version_name)
    return {"name": source.name, "version": body.new_version_name, "source_version": source.label}


def _version(world: World, which: Which) -> Version:
    with world.store.read() as session:
        return environments.get(session, which.name, which.version)


def _flags(version: Version) -> dict[str, bool]:
    return {"validated": version.validated, "profiled": version.profiled}


def _created(world: World, form: FormData) -> tuple[Version, bool, list[Remark]]:
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str) and value}
    archive = form.get("file")
    if not isinstance(archive, UploadFile):
        raise RefusedError(422, "bad-request", "send the environment's archive as the part file")
    name = fields.get("name", "")
    sent = environment_uploads.Sent(
        name=name,
        archive=archive.file,
        config=_side(form, "env_config"),
        requirements=_side(form, "requirements"),
        entrypoint=fields.get("entrypoint"),
        multi_agent=_true(fields, "multi_agent"),
    )
    accepted = environment_uploads.accept(world.blobs, sent)
    wanted = Version(
        name=name,
        label=fields.get("version", "v1"),
        source=accepted.source,
        description=fields.get("description", ""),
        language=_true(fields, "language_based"),
    )
    return environments.create(world, wanted), _true(fields, "do_rollouts"), _left_out(accepted.left_out)


def _side(form: FormData, name: str) -> bytes:
    part = form.get(name)
    if not isinstance(part, UploadFile):
        return b""
    content = part.file.read(SIDE_LIMIT + 1)
    if len(content) > SIDE_LIMIT:
        raise RefusedError(413, "too-large", f"{name} may have {SIDE_LIMIT} bytes")
    return content


def _true(fields: dict[str, str], name: str) -> bool:
    return fields.get(name, "").lower() == "true"


def _left_out(names: tuple[str, ...]) -> list[Remark]:
    if not names:
        return []
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return [Remark(f"left out of the archive: {', '.join(names[:NAMED_AT_MOST])}{more}", warning=True)]


def _with_remarks(
    world: World, version: Version, remarks: list[Remark], *, rollouts: bool
) -> Iterator[stream.Step]:
    yield from remarks
    yield from environment_checks.validate(world, version, rollouts=rollouts)
