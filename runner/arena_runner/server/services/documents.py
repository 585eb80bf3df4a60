"""Rows to `ResourceDocument` and `StateDocument`; a fixed number of queries, however many resources there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.digest import Fingerprint, sha256_bytes
from arena_gitops.spec.job import RunStatus
from arena_gitops.spec.resource import served_as
from arena_gitops.spec.wire import (
    AliasChoice,
    DeploymentStatus,
    KnownRun,
    Owner,
    Provenance,
    ResourceDocument,
    StateDocument,
)
from arena_runner.server import profiles
from arena_runner.server.services import runs, secrets, shapes, spending
from arena_runner.server.store.tables import (
    CheckpointRow,
    DeploymentStateRow,
    ResourceRow,
    RevisionRow,
    RunRow,
    RunStateRow,
    VersionRow,
)
from arena_runner.server.world import VERSION, World


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the rows of several resources refer to, fetched at once."""

    runs: Mapping[int, RunStatus] = field(default_factory=dict)
    deployments: dict[str, DeploymentStatus] = field(default_factory=dict)


def document(session: Session, world: World, row: ResourceRow) -> ResourceDocument:
    """One resource as the platform stores and sees it."""
    return _document(row, _look(session, world, [row]))


def state(
    session: Session, world: World, owner: Owner, choices: Mapping[str, AliasChoice] | None = None
) -> StateDocument:
    """Everything `owner` has in its namespace; `choices` are what people have chosen, by deployment."""
    query = select(ResourceRow).where(ResourceRow.namespace == owner.namespace, ~ResourceRow.retired)
    rows = list(session.scalars(query.order_by(ResourceRow.kind, ResourceRow.name)))
    own = [r for r in rows if r.stack == owner.stack]
    seen = _look(session, world, own)
    for name, choice in (choices or {}).items():
        if (status := seen.deployments.get(name)) is not None:
            seen.deployments[name] = status.model_copy(update={"choice": choice})
    answer = StateDocument(
        platform="arena-runner",
        version=VERSION,
        lineage=world.store.lineage(),
        etag="",
        resources=tuple(_document(r, seen) for r in own),
        foreign=tuple(f"{r.kind}/{r.name} {r.stack}" for r in rows if r.stack != owner.stack),
        runs=_known_runs(session),
        tiers=world.tiers.tiers,
        algorithms=tuple(sorted(ALGORITHMS)),
        max_steps=world.settings.limits.max_steps,
        spent_this_month=spending.this_month(session, world, owner),
        models=shapes.at_hand(world),
        secrets=secrets.versions(session),
        profiles=tuple(profiles.known(world).values()),
    )
    return answer.model_copy(update={"etag": sha256_bytes(answer.model_dump_json().encode())})


def deployment_status(
    row: DeploymentStateRow, revision: RevisionRow | None, world: World
) -> DeploymentStatus:
    """Rows to `DeploymentStatus`; `revision` is the one that serves."""
    served = {"run_id": revision.run_id, "checkpoint": revision.checkpoint} if revision else {}
    if revision:
        served |= {"digest": revision.digest, "url": f"{world.public}/i/{served_as(row.namespace, row.name)}"}
    refused = row.refused is not None and row.state == "held"
    return DeploymentStatus.model_validate(
        {
            "state": row.state,
            "message": row.message,
            "revision": row.revision,
            "hold": row.hold,
            "refused": refused,
            **served,
        }
    )


def _document(row: ResourceRow, seen: _Seen) -> ResourceDocument:
    return ResourceDocument(
        kind=row.kind,
        name=row.name,
        etag=row.etag,
        owner=Owner(stack=row.stack, namespace=row.namespace),
        spec=row.spec,
        fingerprint=Fingerprint.model_validate(row.fingerprint),
        version=row.version,
        run=seen.runs.get(row.id),
        deployment=seen.deployments.get(row.name) if row.kind == "deployment" else None,
        provenance=Provenance.model_validate(row.provenance),
    )


def _look(session: Session, world: World, rows: Iterable[ResourceRow]) -> _Seen:
    rows = list(rows)
    return _Seen(_runs_of(session, world, rows), _deployments_of(session, world, rows))


def _runs_of(session: Session, world: World, rows: list[ResourceRow]) -> dict[int, RunStatus]:
    keys = {(r.namespace, r.kind, r.name, r.version): r for r in rows if r.kind == "experiment"}
    if not keys:
        return {}
    columns = (VersionRow.namespace, VersionRow.kind, VersionRow.name, VersionRow.version)
    query = select(*columns, VersionRow.run_id).where(tuple_(*columns).in_(list(keys)))
    found = [(keys[space, kind, name, v], run_id) for space, kind, name, v, run_id in session.execute(query)]
    known = runs.statuses(session, world, {run_id for _, run_id in found if run_id})
    return {row.id: _named(known[run_id], row) for row, run_id in found if run_id}


def _named(status: RunStatus, row: ResourceRow) -> RunStatus:
    """A shared run, told as the experiment that asks."""
    return status.model_copy(update={"experiment": row.name})


def _deployments_of(session: Session, world: World, rows: list[ResourceRow]) -> dict[str, DeploymentStatus]:
    keys = [(r.namespace, r.name) for r in rows if r.kind == "deployment"]
    if not keys:
        return {}
    serving = (
        (RevisionRow.namespace == DeploymentStateRow.namespace)
        & (RevisionRow.deployment == DeploymentStateRow.name)
        & (RevisionRow.number == DeploymentStateRow.revision)
    )
    query = select(DeploymentStateRow, RevisionRow).outerjoin(RevisionRow, serving)
    query = query.where(tuple_(DeploymentStateRow.namespace, DeploymentStateRow.name).in_(keys))
    return {row.name: deployment_status(row, revision, world) for row, revision in session.execute(query)}


def _known_runs(session: Session) -> tuple[KnownRun, ...]:
    fitness = select(CheckpointRow.run_id, func.max(CheckpointRow.fitness).label("best"))
    fittest = fitness.group_by(CheckpointRow.run_id).subquery()
    query = (
        select(RunRow, RunStateRow, fittest.c.best)
        .join(RunStateRow)
        .outerjoin(fittest, fittest.c.run_id == RunRow.id)
        .where(RunRow.wanted == "run", RunStateRow.state.in_(runs.USABLE))
        .order_by(RunRow.created)
    )
    return tuple(
        KnownRun(
            run_id=run.id,
            fingerprint=run.fingerprint,
            experiment=run.experiment,
            version=run.version,
            state=observed.state,
            fitness=best,
            max_steps=run.max_steps,
            rerun=run.rerun,
        )
        for run, observed, best in session.execute(query)
    )
