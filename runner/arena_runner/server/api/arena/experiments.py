"""Experiments that exist: listed, stopped, resumed, their checkpoints and metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, Field

from arena_gitops.spec.job import Checkpoint, RunStatus
from arena_runner.server.api.arena.door import Editor, Sent, Text, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.services import directory, imperative, measures, runs
from arena_runner.server.services.directory import Listed

MIB = 2**20

router = new_router()

Count = Annotated[int | None, BeforeValidator(lambda value: value or None), Field(ge=1)]


class Experiment(Sent):
    """Which experiment."""

    experiment_name: str


class Further(Experiment):
    """Which experiment, and how far."""

    max_steps: int


@router.get("/experiments/list")
def listed(world: TheWorld, _caller: Viewer, project: Text = None) -> list[dict[str, Any]]:
    """The experiments of a project, or all."""
    with world.store.read() as session:
        if project:
            imperative.get(session, "project", project)
        found = directory.listed(session, world, "experiment")
    wanted = imperative.slug(project) if project else None
    return [_row(one) for one in found if wanted in {None, one.spec.get("project")}]


@router.post("/experiments/jobs/stop")
def stop(world: TheWorld, caller: Editor, body: Experiment) -> dict[str, Any]:
    """Stop at the next iteration's end; what was saved stays."""
    status = directory.stop(world, body.experiment_name, caller.subject)
    return {"experiment_name": body.experiment_name, **_status(status)}


@router.post("/experiments/jobs/resume")
def resume(world: TheWorld, _caller: Editor, body: Further) -> dict[str, Any]:
    """Go on from the last saved state, to a larger `max_steps`."""
    directory.raise_steps(world, body.experiment_name, body.max_steps)
    with world.store.read() as session:
        status = runs.status(session, world, directory.run_of(session, body.experiment_name).run.id)
    return {"experiment_name": body.experiment_name, **_status(status)}


@router.get("/experiments/jobs/checkpoints")
def checkpoints(world: TheWorld, _caller: Viewer, experiment_name: str) -> list[dict[str, Any]]:
    """Every export of the current run, the oldest first."""
    with world.store.read() as session:
        status = runs.status(session, world, directory.run_of(session, experiment_name).run.id)
    return [_checkpoint(one, best=one == status.best) for one in status.checkpoints]


@router.get("/experiments/metrics", response_model=None)
def metrics(
    world: TheWorld,
    _caller: Viewer,
    experiment_name: str,
    preview_rows: Count = None,
    metric: Annotated[tuple[str, ...], Query()] = (),
    *,
    details: bool = False,
) -> Response:
    """CSV when `preview_rows` says how much of it; else the names of the metrics."""
    with world.store.read() as session:
        run_id = directory.run_of(session, experiment_name).run.id
        found = measures.of_run(session, run_id)
    names = measures.names(found)
    if preview_rows is None:
        return JSONResponse({"experiment_id": run_id, "metrics": names} if details else names)
    only = [name for name in metric if name]
    if unknown := sorted(set(only) - set(names)):
        raise measures.unknown_metrics(unknown, names)
    filename = f"{imperative.slug(experiment_name)}-metrics.csv"
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    text = measures.table(found, only=only, rows=preview_rows)
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _row(one: Listed) -> dict[str, Any]:
    manifest = one.spec["manifest"]
    row = {"name": one.name, "project": one.spec.get("project"), "algorithm": manifest["algorithm"]["name"]}
    row["asked_steps"] = manifest["training"]["max_steps"]
    row |= {"version": one.document.version, "managed_by": one.document.owner.stack, "id": one.document.name}
    return row | _status(one.document.run) if one.document.run else row


def _status(run: RunStatus) -> dict[str, Any]:
    return {
        "status": run.state,
        "reason": run.reason,
        "message": run.message,
        "step": run.step,
        "max_steps": run.max_steps,
        "fitness": run.best.fitness if run.best else None,
        "run_id": run.run_id,
        "mlflow_url": run.mlflow_url,
    }


def _checkpoint(one: Checkpoint, *, best: bool) -> dict[str, Any]:
    return {
        "steps": one.step,
        "name": one.label,
        "member": one.member,
        "generation": one.generation,
        "fitness": one.fitness,
        "best": best,
        "size_mb": one.size_bytes / MIB,
        "digest": one.digest,
    }
