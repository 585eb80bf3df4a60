"""What a PUT of a deployment stores, and what serves under a name. The controller does the rest."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import AliasChoice, DeploymentSpec, Owner
from arena_runner.server.refusals import stale
from arena_runner.server.registry import ask_alias, model_name
from arena_runner.server.services import audit
from arena_runner.server.store.tables import (
    CheckpointRow,
    DeploymentStateRow,
    RegistrationRow,
    ResourceRow,
    RevisionRow,
    RunRow,
)
from arena_runner.server.world import World

RESIDENT = 2
"""Superseded revisions of a deployment whose adapters stay loaded."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What `@alias` meant when the deployment was PUT: a checkpoint, or why there is none."""

    run_id: str = ""
    step: int = 0
    member: int = 0
    missing: str = ""
    """in words, when the alias names nothing"""
    version: str = ""
    """of the registered model"""
    known: bool = True
    """False: MLflow did not answer"""

    @property
    def place(self) -> tuple[str, int, int]:
        """Run, step and member."""
        return self.run_id, self.step, self.member


def look_up_alias(world: World, owner: Owner, spec: DeploymentSpec) -> Pin | None:
    """Resolve `@alias` through MLflow, now; None for a standing choice. Controllers never follow an alias."""
    if not spec.checkpoint.startswith("@"):
        return None
    alias = spec.checkpoint.removeprefix("@")
    model = model_name(owner.namespace, spec.experiment)
    answer = ask_alias(world.links.mlflow, model, alias)
    if not answer.reachable:
        return Pin(missing=f"alias {alias!r} is unknown: MLflow did not answer; apply again", known=False)
    if answer.version is None:
        page = _page(world, model)
        return Pin(missing=f"waiting for alias {alias!r} on model {model}: set it at {page} and apply again")
    with world.store.read() as session:
        query = select(RegistrationRow).where(RegistrationRow.model == model)
        row = session.scalar(query.where(RegistrationRow.version == answer.version))
    if row is None:
        message = (
            f"alias {alias!r} points to version {answer.version} of {model}, which no run of this server made"
        )
        return Pin(missing=message)
    return Pin(row.run_id, row.step, row.member, version=answer.version)


def _page(world: World, model: str) -> str:
    return f"{world.dashboard}/#/models/{model}"


def choices(world: World, owner: Owner) -> dict[str, AliasChoice]:
    """By deployment, what people have chosen for it, asked now; deployments with a standing choice are left out."""
    query = select(ResourceRow.name, ResourceRow.spec).where(
        ResourceRow.kind == "deployment", ResourceRow.namespace == owner.namespace, ~ResourceRow.retired
    )
    with world.store.read() as session:
        rows = list(session.execute(query.where(ResourceRow.stack == owner.stack)))
    found = {}
    for name, raw in rows:
        spec = DeploymentSpec.model_validate(raw)
        pin = look_up_alias(world, owner, spec)
        if pin is not None:
            found[name] = _choice(world, owner, name, spec, pin)
    return found


def _choice(world: World, owner: Owner, name: str, spec: DeploymentSpec, pin: Pin) -> AliasChoice:
    """A pin as the state document tells it."""
    alias, experiment = spec.checkpoint.removeprefix("@"), spec.experiment
    page = _page(world, model_name(owner.namespace, experiment)) if world.dashboard else None
    if pin.missing:
        return AliasChoice(alias=alias, known=pin.known, message=pin.missing, page=page)
    with world.store.read() as session:
        state = session.get(DeploymentStateRow, (owner.namespace, name))
        run = session.get_one(RunRow, pin.run_id)
        digest = _digest_of(session, pin)
        chosen = audit.latest(session, model_name(owner.namespace, experiment), alias)
    known = chosen is not None and chosen.new == pin.version
    return AliasChoice(
        alias=alias,
        page=page,
        by=chosen.by if chosen and known else None,
        since=chosen.at if chosen and known else None,
        version=pin.version,
        run_id=pin.run_id,
        run_version=run.version,
        checkpoint=f"step_{pin.step}/m{pin.member}",
        digest=digest,
        applied=state is not None and state.pin is not None and Pin(**state.pin).place == pin.place,
    )


def require_choice(session: Session, address: Address, pin: Pin | None, approved: str) -> None:
    """Refuse to promote another checkpoint than the one that was seen: aliases move at any time."""
    if pin is None or pin.missing:
        raise stale(f"{address} would follow {approved[:15]}…, but {pin.missing if pin else 'no alias'}")
    if _digest_of(session, pin) != approved:
        raise stale(f"the alias that {address} follows points to version {pin.version} by now")


def _digest_of(session: Session, pin: Pin) -> str | None:
    query = select(CheckpointRow.digest).where(CheckpointRow.run_id == pin.run_id)
    return session.scalar(query.where(CheckpointRow.step == pin.step, CheckpointRow.member == pin.member))


def settle(session: Session, world: World, row: ResourceRow, pin: Pin | None, *, changed: bool) -> None:
    """Store what the controller needs; a PUT lifts an earlier refusal, and one with new content a hold."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is None:
        state = DeploymentStateRow(namespace=row.namespace, name=row.name, state="pending", revision=0)
        session.add(state)
    if state.revision == 0 or state.state == "undeployed":
        state.state, state.message = "pending", "not looked at yet"
    state.refused = None
    state.decide(asdict(pin) if pin else None, None if changed else state.hold)
    state.updated = world.clock()


def residents(session: Session, namespace: str, name: str) -> list[RevisionRow]:
    """Revisions that stay loaded beside the one that serves: the canary, and what was taken over from last.

    Going back to one of them loads nothing, and it still answers to its number.
    """
    query = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    newest = query.where(RevisionRow.state == "superseded").order_by(RevisionRow.updated.desc())
    canaries = session.scalars(query.where(RevisionRow.state == "canary"))
    return [*canaries, *session.scalars(newest.limit(RESIDENT))]


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
