"""What a PUT of a deployment stores, and what serves under a name. The controller does the rest."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.wire import DeploymentSpec, Owner
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow
from arena_runner.server.world import World


@dataclass(frozen=True, slots=True)
class AliasChoice:
    """What `@alias` meant when the deployment was PUT."""

    run_id: str | None
    step: int | None
    member: int | None
    message: str
    """why it means nothing, when it does not"""


def look_up_alias(world: World, owner: Owner, spec: DeploymentSpec) -> AliasChoice | None:
    """Resolve `@alias` through MLflow; None for a standing choice."""
    if not spec.checkpoint.startswith("@"):
        return None
    alias = spec.checkpoint.removeprefix("@")
    return AliasChoice(None, None, None, f"waiting for alias {alias!r} on model {spec.experiment}")


def settle(session: Session, world: World, row: ResourceRow, alias: AliasChoice | None) -> None:
    """Store what the controller needs; a changed spec lifts an earlier refusal."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is None:
        state = DeploymentStateRow(namespace=row.namespace, name=row.name, state="pending", revision=0)
        state.message = "not looked at yet"
        session.add(state)
    if state.state == "undeployed":
        state.state, state.message = "pending", "not looked at yet"
    state.refused = None
    state.pinned = None
    state.updated = world.clock()


def retire(session: Session, world: World, row: ResourceRow) -> None:
    """Stop serving; revisions are kept so that the same file restores service."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is not None:
        state.state, state.message, state.updated = "undeployed", "retired", world.clock()


def serving_revision(session: Session, namespace: str, name: str) -> RevisionRow | None:
    """The revision that serves under this name."""
    state = session.get(DeploymentStateRow, (namespace, name))
    if state is None or state.revision == 0 or state.state == "undeployed":
        return None
    query = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    return session.scalar(query.where(RevisionRow.number == state.revision))
