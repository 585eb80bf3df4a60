"""`/api/v1/leases`: one apply of a stack at a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from arena_gitops.spec.lease import Heartbeat, Lease, LeaseRequest
from arena_gitops.spec.wire import Owner
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Role
from arena_runner.server.services import imperative, leases

router = APIRouter(prefix="/api/v1/leases", tags=["leases"])


@router.post("", status_code=201, dependencies=[caller(Role.EDITOR)])
def take(world: TheWorld, body: LeaseRequest) -> Lease:
    """Take the lease of a stack; 423 names who holds it since when."""
    imperative.check_stack(body.owner)
    return leases.take(world, body)


@router.get("", dependencies=[caller(Role.VIEWER)])
def show(world: TheWorld, owner: Annotated[Owner, Query()]) -> tuple[Lease, ...]:
    """The lease of a stack that lives now: one, or none."""
    return leases.living(world, owner)


@router.post("/{lease_id}/heartbeat", dependencies=[caller(Role.EDITOR)])
def renew(world: TheWorld, lease_id: str, body: Heartbeat) -> Lease:
    """The holder lives; 423 when the lease is over."""
    return leases.renew(world, lease_id, body.fence)


@router.delete("/{lease_id}", status_code=204, dependencies=[caller(Role.EDITOR)])
def release(world: TheWorld, lease_id: str) -> Response:
    """End a lease; by its holder, or by somebody who knows that its holder is gone."""
    leases.release(world, lease_id)
    return Response(status_code=204)
