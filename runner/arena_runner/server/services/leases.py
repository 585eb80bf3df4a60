"""Leases: one apply of a stack at a time, and no write of one whose time is over.

Expired is not lost: until somebody else takes it, a late heartbeat or write of the holder is as good as before.
"""

from __future__ import annotations

import uuid

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from arena_gitops.spec.lease import Lease, LeaseRequest
from arena_gitops.spec.wire import Owner
from arena_runner.server.refusals import RefusedError
from arena_runner.server.store.leases import LeaseRow
from arena_runner.server.world import World


def take(world: World, request: LeaseRequest) -> Lease:
    """A new lease; 423 while somebody else's lives."""
    try:
        return _take(world, request)
    except IntegrityError:  # two first leases of a stack at once: the other one's row is there by now
        return _take(world, request)


def renew(world: World, lease_id: str, fence: int) -> Lease:
    """The same lease for another TTL; 423 when it was released or somebody else has taken it."""
    with world.store.write() as session:
        row = _by_id(session, lease_id)
        if row is None or row.fence != fence:
            raise _lost()
        row.expires = world.clock() + row.ttl_s
        return _lease(row)


def release(world: World, lease_id: str) -> None:
    """End a lease, whoever holds it; one that has ended already stays so."""
    with world.store.write() as session:
        row = _by_id(session, lease_id)
        if row is not None:
            row.id = None


def living(world: World, owner: Owner) -> tuple[Lease, ...]:
    """The lease of a stack, if there is one."""
    with world.store.read() as session:
        row = session.get(LeaseRow, (owner.namespace, owner.stack))
    return (_lease(row),) if row is not None and _lives(row, world) else ()


def guard(session: Session, world: World, owner: Owner, fence: int | None) -> None:
    """Refuse a write beside somebody's lease, or under one that is over."""
    row = session.get(LeaseRow, (owner.namespace, owner.stack), with_for_update=True)
    if fence is not None and (row is None or row.id is None or row.fence != fence):
        raise _lost()
    if fence is None and row is not None and _lives(row, world):
        raise _locked(row, world)


def _take(world: World, request: LeaseRequest) -> Lease:
    now = world.clock()
    with world.store.write() as session:
        key = request.owner.namespace, request.owner.stack
        row = session.get(LeaseRow, key, with_for_update=True)
        if row is not None and _lives(row, world):
            raise _locked(row, world)
        if row is None:
            row = LeaseRow(namespace=key[0], stack=key[1], fence=0)
            session.add(row)
        row.fence += 1
        row.id = uuid.uuid4().hex
        row.holder, row.operation, row.run_url = request.holder, request.operation, request.run_url
        row.ttl_s, row.created, row.expires = request.ttl_s, now, now + request.ttl_s
        session.flush()
        return _lease(row)


def _by_id(session: Session, lease_id: str) -> LeaseRow | None:
    return session.scalar(select(LeaseRow).where(LeaseRow.id == lease_id).with_for_update())


def _lives(row: LeaseRow, world: World) -> bool:
    return row.id is not None and row.expires > world.clock()


def _lease(row: LeaseRow) -> Lease:
    return Lease(
        id=str(row.id),
        owner=Owner(stack=row.stack, namespace=row.namespace),
        holder=row.holder,
        operation=row.operation,
        run_url=row.run_url,
        fence=row.fence,
        ttl_s=row.ttl_s,
        created=row.created,
        expires=row.expires,
    )


def _locked(row: LeaseRow, world: World) -> RefusedError:
    lease = _lease(row)
    message = f"stack {row.stack} in namespace {row.namespace} is locked: {lease.told(world.clock())}"
    details = {k: str(v) for k, v in lease.model_dump(exclude={"owner", "fence"}).items() if v is not None}
    return RefusedError(423, "locked", message, details)


def _lost() -> RefusedError:
    message = "the lease of this apply is over: it was released, or somebody else has taken it"
    return RefusedError(423, "lease-lost", message)
