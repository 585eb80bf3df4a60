"""What answers under a deployment's name right now: revision, adapter, model server. Read for every request."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import ModelRef
from arena_runner.server.refusals import RefusedError
from arena_runner.server.store.tables import DeploymentStateRow, RevisionRow, RunRow
from arena_runner.server.world import ModelServer, World


@dataclass(frozen=True, slots=True)
class Served:
    """One revision that serves, and the model server it is loaded on."""

    deployment: str
    namespace: str
    revision: int
    checkpoint: str
    run_id: str
    adapter: str
    algorithm: str
    since: float
    server: ModelServer

    @property
    def label(self) -> str:
        """`name@revision step_N/mK run`: says in every answer what has spoken."""
        return f"{self.deployment}@{self.revision} {self.checkpoint} {self.run_id}"


def find(world: World, name: str, namespace: str = "main") -> Served:
    """What serves under a name; 404 when there is no such deployment, 503 while it does not serve."""
    with world.store.read() as session:
        state = session.get(DeploymentStateRow, (namespace, name))
        if state is None or state.state == "undeployed":
            raise RefusedError(
                404, "unknown-deployment", f"deployment {name} does not exist{_known(session, namespace)}"
            )
        revision = _revision(session, namespace, name)
        if revision is None:
            raise RefusedError(503, "not-serving", f"deployment {name} is {state.state}: {state.message}")
        return _served(session, world, revision)


def everything(world: World, namespace: str = "main") -> list[Served]:
    """All that serves, by name."""
    with world.store.read() as session:
        names = _names(session, namespace)
        revisions = [revision for name in names if (revision := _revision(session, namespace, name))]
        ready = [item for item in revisions if _server(world, item) is not None]
        return [_served(session, world, revision) for revision in ready]


def _served(session: Session, world: World, revision: RevisionRow) -> Served:
    server = _server(world, revision)
    if server is None:
        text = f"the model server of deployment {revision.deployment} is starting"
        raise RefusedError(503, "not-serving", text)
    run = session.get(RunRow, revision.run_id)
    algorithm = run.spec["manifest"]["algorithm"]["name"] if run else ""
    return Served(
        deployment=revision.deployment,
        namespace=revision.namespace,
        revision=revision.number,
        checkpoint=revision.checkpoint,
        run_id=revision.run_id,
        adapter=revision.adapter,
        algorithm=str(algorithm),
        since=revision.created,
        server=server,
    )


def _server(world: World, revision: RevisionRow) -> ModelServer | None:
    return world.links.model_servers.get(ModelRef.model_validate(revision.model).id)


def _revision(session: Session, namespace: str, name: str) -> RevisionRow | None:
    """The revision that serves under a name."""
    query = (
        select(RevisionRow)
        .join(
            DeploymentStateRow,
            (DeploymentStateRow.namespace == RevisionRow.namespace)
            & (DeploymentStateRow.name == RevisionRow.deployment)
            & (DeploymentStateRow.revision == RevisionRow.number),
        )
        .where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
        .where(DeploymentStateRow.state != "undeployed")
    )
    return session.scalar(query)


def _names(session: Session, namespace: str) -> list[str]:
    query = (
        select(DeploymentStateRow.name)
        .where(DeploymentStateRow.namespace == namespace, DeploymentStateRow.state != "undeployed")
        .order_by(DeploymentStateRow.name)
    )
    return list(session.scalars(query))


def _known(session: Session, namespace: str) -> str:
    names = _names(session, namespace)
    return f"; there are: {', '.join(names)}" if names else "; none exists"
