"""Projects: a name that experiments are gathered under."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from arena_gitops.spec.job import RunState
from arena_runner.server.api.arena.door import Editor, Named, Sent, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative, runs
from arena_runner.server.services.experiments import current_version
from arena_runner.server.store.tables import ResourceRow

router = new_router()


class NewProject(Sent):
    """The body of a creation."""

    name: str
    description: str | None = None
    llm_based: bool = False


@router.get("/projects")
def listed(world: TheWorld, _caller: Viewer) -> list[dict[str, Any]]:
    """Every project, whoever made it."""
    with world.store.read() as session:
        return [_row(row) for row in imperative.living(session, "project")]


@router.post("/projects/create")
def create(world: TheWorld, _caller: Editor, body: NewProject) -> dict[str, Any]:
    """A new project; one that exists already is no error."""
    with world.store.read() as session:
        known = imperative.find(session, "project", body.name)
    if known is not None and imperative.shown(known) == body.name:
        return _row(known)
    labels = imperative.labels(body.name)
    spec = {"description": body.description or "", "labels": labels, "owner": None, "lifecycle": {}}
    imperative.put(world, "project", body.name, {**spec, "llm_based": body.llm_based})
    with world.store.read() as session:
        return _row(imperative.get(session, "project", body.name))


@router.delete("/projects/delete")
def delete(world: TheWorld, _caller: Editor, body: Named) -> dict[str, Any]:
    """Forget a project; its experiments keep what they have. Refused while one of them is at work."""
    with world.store.read() as session:
        row = imperative.get(session, "project", body.name)
        busy = [
            e.name
            for e in imperative.living(session, "experiment")
            if e.spec.get("project") == row.name and _at_work(session, e)
        ]
    if busy:
        message = f"project {body.name!r} has experiments at work: {', '.join(busy)}; stop them first"
        raise RefusedError(409, "busy", message)
    imperative.retire(world, "project", body.name)
    return {"name": body.name, "deleted": True}


def _row(row: ResourceRow) -> dict[str, Any]:
    kind = "llm" if row.spec.get("llm_based") else "simulation"
    description = row.spec.get("description") or ""
    return {"name": imperative.shown(row), "type": kind, "description": description, "id": row.name}


def _at_work(session: Session, experiment: ResourceRow) -> bool:
    run_id = current_version(session, experiment).run_id
    return run_id is not None and not RunState(runs.get(session, run_id).state.state).ended
