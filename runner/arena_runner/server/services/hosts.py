"""Serving hosts: who may be one, what it is told to run, and what its token opens."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.worker import HostOrder, HostOrders, HostReport
from arena_runner.server.auth import Identity
from arena_runner.server.hosts import POLL_S
from arena_runner.server.places import place_of
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.services.workers import check_tier, check_version
from arena_runner.server.store.tables import RevisionRow
from arena_runner.server.world import World

LOADED = ("loading", "canary", "serving", "superseded")


def report(world: World, caller: Identity, said: HostReport) -> HostOrders:
    """Take a host's report in; what it should run."""
    check_version(said.version, "serving host")
    tier = check_tier(world, caller, said.tier)
    if tier.serving != "pull":
        message = f"the server serves tier {tier.id} itself; set serving: pull for it in tiers.yaml"
        raise RefusedError(422, "local-tier", message)
    known = world.links.hosts.of(said.host_id)
    if known is not None and known.token_id != caller.token_id:
        message = f"a host called {said.host_id} has introduced itself with another token"
        raise RefusedError(403, "forbidden", message)
    if world.links.hosts.heard(said, caller.token_id, world.clock()):
        world.bell.ring()
    orders = world.links.hosts.orders(said.host_id)
    return HostOrders(
        models=tuple(HostOrder(key=place.key, model=place.model, engine=place.engine) for place in orders),
        poll_s=POLL_S,
    )


def check_own(world: World, caller: Identity, host_id: str) -> None:
    """Refuse a connection for a host that this token has not introduced."""
    known = world.links.hosts.of(host_id)
    if known is None:
        raise not_found(f"serving host {host_id}")
    if known.token_id != caller.token_id:
        raise RefusedError(403, "forbidden", f"host {host_id} has introduced itself with another token")


def may_have_model(world: World, caller: Identity, name: str) -> bool:
    """Whether a base model is one that a host of this token should run."""
    return name in {place.model.id for place in world.links.hosts.opened_by(caller.token_id)}


def may_read(session: Session, world: World, caller: Identity, digest: str) -> bool:
    """Whether a blob is part of a revision that a host of this token should have."""
    keys = {place.key for place in world.links.hosts.opened_by(caller.token_id)}
    if not keys:
        return False
    query = select(RevisionRow).where(RevisionRow.state.in_(LOADED), RevisionRow.place.is_not(None))
    return any(
        digest in revision.files.values() and place_of(world, revision).key in keys
        for revision in session.scalars(query)
    )
