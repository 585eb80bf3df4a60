"""Going back to an earlier revision of a deployment, and ending that: a hold, visible in every plan until then.

Nothing is trained, and no gate is asked: the revision has served before. The controller loads, probes and flips.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Hold, Owner, ResourceDocument, Revision
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.services import switching
from arena_runner.server.services.documents import document
from arena_runner.server.services.resources import check_owner, find
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow
from arena_runner.server.world import World

SERVED = ("serving", "superseded")
"""States of revisions that have served, and so can serve again."""


def revisions(session: Session, namespace: str, name: str) -> tuple[Revision, ...]:
    """Every rollout of a deployment, oldest first; a retired one keeps them."""
    if find(session, Address("deployment", name), namespace) is None:
        raise not_found(f"deployment/{name}")
    return tuple(_revision(row) for row in _rows(session, namespace, name))


def rollback(world: World, name: str, owner: Owner, to: int | None, by: str) -> ResourceDocument:
    """Hold the deployment at an earlier revision; without `to`, at the one that served before."""
    with world.store.write() as session:
        _, state = _living(session, name, owner)
        revision = _earlier(_rows(session, owner.namespace, name), name, state.revision, to)
        before = Hold.model_validate(state.hold) if state.hold else None
        wanted = before.wanted if before else state.revision
        hold = Hold(revision=revision.number, wanted=wanted, by=by, since=world.clock())
        state.decide(state.pin, hold.model_dump(mode="json"))
        state.refused, state.updated = None, world.clock()
    return _on_its_way(world, name, owner)


def resume(world: World, name: str, owner: Owner) -> ResourceDocument:
    """End the hold and try what failed again; a deployment without either stays as it is."""
    with world.store.write() as session:
        _, state = _living(session, name, owner)
        state.decide(state.pin, None)
        state.refused, state.updated = None, world.clock()
    return _on_its_way(world, name, owner)


def _on_its_way(world: World, name: str, owner: Owner) -> ResourceDocument:
    """What is there already serves by now; anything else is the controller's."""
    switching.hurry(world, owner.namespace, name)
    with world.store.read() as session:
        return document(session, world, _living(session, name, owner)[0])


def _living(session: Session, name: str, owner: Owner) -> tuple[ResourceRow, DeploymentStateRow]:
    row = find(session, Address("deployment", name), owner.namespace)
    state = session.get(DeploymentStateRow, (owner.namespace, name))
    if row is None or row.retired or state is None:
        raise not_found(f"deployment/{name}")
    check_owner(row, owner)
    return row, state


def _rows(session: Session, namespace: str, name: str) -> list[RevisionRow]:
    query = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    return list(session.scalars(query.order_by(RevisionRow.number)))


def _earlier(rows: list[RevisionRow], name: str, serving: int, to: int | None) -> RevisionRow:
    served = [row for row in rows if row.state in SERVED]
    if to is None:
        before = [row for row in served if row.number < serving]
        if not before:
            message = f"deployment/{name} has no revision before r{serving} that has served"
            raise RefusedError(409, "no-earlier-revision", message)
        return before[-1]
    found = next((row for row in served if row.number == to), None)
    if found is None:
        known = ", ".join(f"r{row.number}" for row in served) or "none"
        message = f"r{to} of deployment/{name} has never served; these have: {known}"
        raise RefusedError(409, "no-such-revision", message)
    return found


def _revision(row: RevisionRow) -> Revision:
    return Revision.model_validate(
        {
            "number": row.number,
            "state": row.state,
            "run_id": row.run_id,
            "version": row.version,
            "checkpoint": row.checkpoint,
            "digest": row.digest,
            "message": row.message,
            "created": row.created,
        }
    )
