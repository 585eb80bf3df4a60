"""Deployments: an experiment served under its own name."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from arena_gitops.spec.wire import DeploymentStatus
from arena_runner.server.api.arena.door import Editor, Named, Sent, Text, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.refusals import not_found
from arena_runner.server.services import directory, imperative, sessions, targets
from arena_runner.server.services.directory import Listed

router = new_router("/api/cli/v1/inference")


class Deploy(Sent):
    """What to serve, and who shares its sessions."""

    experiment_name: str
    checkpoint: Text = None
    memoryScope: Text = None  # noqa: N815 - the client's name


class Which(Sent):
    """Which deployments; the client writes these names in camel case."""

    name: Text = None
    experimentName: Text = None  # noqa: N815 - the client's name
    projectName: Text = None  # noqa: N815 - the client's name

    def fits(self, one: Listed, project: str | None) -> bool:
        """Whether a deployment is among them."""
        asked = (self.name, self.experimentName, self.projectName)
        has = (one.document.name, one.spec["experiment"], project)
        return all(not text or imperative.slug(text) == value for text, value in zip(asked, has, strict=True))


@router.post("/deploy")
def deploy(request: Request, world: TheWorld, _caller: Editor, body: Deploy) -> dict[str, Any]:
    """Serve an experiment, once its run has ended; deploying again follows the new choice."""
    made = directory.deploy(world, body.experiment_name, body.checkpoint, body.memoryScope)
    with world.store.read() as session:
        row = imperative.get(session, "deployment", made.name)
    return _row(request, Listed(imperative.shown(row), made), None)


@router.delete("/deployments/delete")
def undeploy(world: TheWorld, _caller: Editor, body: Named) -> dict[str, Any]:
    """Stop serving; what was trained stays. The published client has no such call; `arena agent undeploy` has."""
    imperative.retire(world, "deployment", body.name)
    return {"name": body.name, "deleted": True}


@router.get("/deployments/list")
def listed(
    request: Request, world: TheWorld, _caller: Viewer, which: Annotated[Which, Query()]
) -> list[dict[str, Any]]:
    """Every deployment that fits."""
    with world.store.read() as session:
        found = directory.listed(session, world, "deployment")
        projects = {one.name: one.spec.get("project") for one in imperative.living(session, "experiment")}
    rows = [(one, projects.get(one.spec["experiment"])) for one in found]
    return [_row(request, one, project) for one, project in rows if which.fits(one, project)]


@router.get("/deployments/one")
def one(
    request: Request, world: TheWorld, caller: Viewer, which: Annotated[Which, Query()]
) -> dict[str, Any]:
    """One deployment, with the address of its inference routes once it serves, and whether that is what it should."""
    found = listed(request, world, caller, which)
    if not found:
        raise not_found(f"deployment {which.name or which.experimentName!r}")
    with world.store.read() as session:
        row = imperative.get(session, "deployment", found[0]["id"])
        return {**found[0], "settled": targets.settled(session, row)}


def _row(request: Request, one: Listed, project: str | None) -> dict[str, Any]:
    status = one.document.deployment or DeploymentStatus(state="pending")
    row = {
        "name": one.name,
        "id": one.document.name,
        "experiment_name": one.spec["experiment"],
        "project_name": project,
        "checkpoint": one.spec["checkpoint"],
        "status": status.state,
        "message": status.message,
        "revision": status.revision,
        "serves": status.checkpoint,
        "memory_scope": one.spec["labels"].get(sessions.SCOPE, sessions.PERSONAL),
        "managed_by": one.document.owner.stack,
    }
    if status.revision:  # on the address by which the caller has reached us
        row["url"] = f"{str(request.base_url).rstrip('/')}/i/{one.document.name}"
    return row
