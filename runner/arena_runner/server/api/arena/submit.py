"""Submission: JSON, or multipart with a reward file; the answer is a stream of lines that ends in a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator, Field, JsonValue, ValidationError
from starlette.datastructures import UploadFile

from arena_gitops.spec.wire import ResourceDocument
from arena_runner.server.api.arena import stream
from arena_runner.server.api.arena.door import Editor, Sent, Text
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative
from arena_runner.server.services.remarks import Done
from arena_runner.server.services.submission import RewardFile, Submission, submit
from arena_runner.server.world import World

REWARD_LIMIT = 1 << 20
FORM_FIELD_LIMIT = 4 << 20
"""Of one text field, a manifest among them."""

router = new_router()


def _tier(value: Any) -> Any:
    return (str(value) or None) if isinstance(value, str | int) else value


Resource = Annotated[str | None, BeforeValidator(_tier)]
"""A tier: the client also takes numbers for it, and sends nothing as empty text."""


class Job(Sent):
    """The fields of a submission, whichever way they came."""

    manifest: dict[str, JsonValue]
    resource_id: Resource = None
    num_nodes: Annotated[int, BeforeValidator(lambda value: value or 1), Field(ge=1)] = 1
    project: Text = None
    experiment_name: Text = None
    completion: str | None = None


@router.post("/experiments/jobs/submit")
async def submit_job(request: Request, world: TheWorld, _caller: Editor) -> StreamingResponse:
    """Check an experiment and start it."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        fields, reward = await _form(request)
    else:
        fields, reward = _json(await request.body(), "the body"), None
    job = _job(fields)
    wanted = Submission(
        manifest=job.manifest,
        tier=job.resource_id,
        num_nodes=job.num_nodes,
        project=job.project,
        name=job.experiment_name,
        reward=reward,
        completion=job.completion,
    )
    return stream.answer("submit", _steps(world, wanted))


async def _form(request: Request) -> tuple[Any, RewardFile | None]:
    async with request.form(max_part_size=FORM_FIELD_LIMIT) as form:
        fields: dict[str, Any] = {k: v for k, v in form.multi_items() if isinstance(v, str)}
        fields["manifest"] = _json(fields.get("manifest", "").encode(), "the field manifest")
        file = form.get("reward_file")
        if not isinstance(file, UploadFile):
            return fields, None
        source = await file.read(REWARD_LIMIT + 1)
        if len(source) > REWARD_LIMIT:
            raise RefusedError(413, "too-large", f"a reward file may have {REWARD_LIMIT} bytes")
        return fields, RewardFile(file.filename or "reward.py", source)


def _json(text: bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise RefusedError(422, "bad-request", f"{what} is not JSON: {problem}") from problem


def _job(fields: Any) -> Job:
    try:
        return Job.model_validate(fields)
    except ValidationError as problem:
        lines = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in problem.errors()]
        raise RefusedError(422, "bad-request", "; ".join(lines)) from problem


def _steps(world: World, wanted: Submission) -> Iterator[stream.Step]:
    for step in submit(world, wanted):
        yield _started(step) if isinstance(step, ResourceDocument) else step


def _started(document: ResourceDocument) -> Done:
    labels = document.spec["labels"]
    name = labels.get(imperative.SHOWN, document.name) if isinstance(labels, dict) else document.name
    detail: dict[str, Any] = {"experiment_name": name, "version": document.version}
    if run := document.run:
        detail |= {"id": run.run_id, "run_id": run.run_id, "status": run.state, "max_steps": run.max_steps}
    message = f"Submitted {name} v{document.version} as run {detail.get('id')}: {detail.get('status')}"
    return Done(message, detail)
