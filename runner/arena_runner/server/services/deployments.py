"""What a PUT of a deployment stores, and what serves under a name. The controller does the rest."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.wire import DeploymentSpec, Owner
from arena_runner.server.registry import ask_alias, model_name
from arena_runner.server.store.tables import DeploymentStateRow, RegistrationRow, ResourceRow, RevisionRow
from arena_runner.server.world import World


@dataclass(frozen=True, slots=True)
class Pin:
    """What `@alias` meant when the deployment was PUT: a checkpoint, or why there is none."""

    run_id: str = ""
    step: int = 0
    member: int = 0
    missing: str = ""
    """in words, when the alias names nothing"""


def look_up_alias(world: World, owner: Owner, spec: DeploymentSpec) -> Pin | None:
    """Resolve `@alias` through MLflow, now; None for a standing choice. Controllers never follow an alias."""
    if not spec.checkpoint.startswith("@"):
        return None
    alias = spec.checkpoint.removeprefix("@")
    model = model_name(owner.namespace, spec.experiment)
    answer = ask_alias(world.links.mlflow, model, alias)
    if not answer.reachable:
        return Pin(missing=f"alias {alias!r} is unknown: MLflow did not answer; apply again")
    if answer.version is None:
        page = f"{world.links.mlflow}/#/models/{model}"
        return Pin(missing=f"waiting for alias {alias!r} on model {model}: set it at {page} and apply again")
    with world.store.read() as session:
        query = select(RegistrationRow).where(RegistrationRow.model == model)
        row = session.scalar(query.where(RegistrationRow.version == answer.version))
    if row is None:
        message = (
            f"alias {alias!r} points to version {answer.version} of {model}, which no run of this server made"
        )
        return Pin(missing=message)
    return Pin(row.run_id, row.step, row.member)


def settle(session: Session, world: World, row: ResourceRow, pin: Pin | None) -> None:
    """Store what the controller needs; a PUT lifts an earlier refusal."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is None:
        state = DeploymentStateRow(namespace=row.namespace, name=row.name, state="pending", revision=0)
        session.add(state)
    if state.revision == 0 or state.state == "undeployed":
        state.state, state.message = "pending", "not looked at yet"
    state.refused = None
    state.pinned = asdict(pin) if pin else None
    state.updated = world.clock()


def retire(session: Session, world: World, row: ResourceRow) -> None:
    """Stop serving; revisions are kept so that the same file restores service."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is not None:
        state.state, state.message, state.updated = "undeployed", "retired", world.clock()


def serving_revisions(session: Session) -> list[tuple[RevisionRow, str]]:
    """Every revision that serves, with the experiment its deployment names, by deployment."""
    query = (
        select(RevisionRow, ResourceRow.spec)
        .join(
            DeploymentStateRow,
            (DeploymentStateRow.namespace == RevisionRow.namespace)
            & (DeploymentStateRow.name == RevisionRow.deployment)
            & (DeploymentStateRow.revision == RevisionRow.number),
        )
        .join(
            ResourceRow,
            (ResourceRow.namespace == RevisionRow.namespace)
            & (ResourceRow.name == RevisionRow.deployment)
            & (ResourceRow.kind == "deployment"),
        )
        .where(~ResourceRow.retired, DeploymentStateRow.state != "undeployed")
        .order_by(RevisionRow.namespace, RevisionRow.deployment)
    )
    return [(revision, str(spec["experiment"])) for revision, spec in session.execute(query)]
