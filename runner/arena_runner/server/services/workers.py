"""The workers of other machines: who may ask for jobs, who is there, and what each of them does."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from arena_gitops.spec.wire import ClaimRequest, Tier
from arena_gitops.spec.worker import WorkerHello, WorkerStatus, WorkerWelcome
from arena_runner.server.auth import Identity
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import queue
from arena_runner.server.services.pair import AT_WORK
from arena_runner.server.store.tables import RunRow, RunStateRow
from arena_runner.server.store.workers import WorkerRow
from arena_runner.server.world import VERSION, World

POLL_S = 5.0
FORGOTTEN_S = 24 * 3600.0
"""A worker that was not heard of for so long is listed no more."""


def register(world: World, caller: Identity, hello: WorkerHello) -> WorkerWelcome:
    """Take a worker in; a repeat is harmless."""
    check_version(hello.version, "worker")
    tier = _open_tier(world, caller, hello.tier)
    now = world.clock()
    with world.store.write() as session:
        working = select(RunStateRow.worker_id).where(RunStateRow.state.in_(AT_WORK))
        old = delete(WorkerRow).where(WorkerRow.seen < now - FORGOTTEN_S)
        session.execute(old.where(WorkerRow.worker_id.not_in(working)))
        known = session.get(WorkerRow, hello.worker_id)
        if known is not None and known.token_id != caller.token_id:
            message = f"a worker called {hello.worker_id} has registered with another token"
            raise RefusedError(403, "forbidden", message)
        row = WorkerRow(worker_id=hello.worker_id, token_id=caller.token_id, hostname=hello.hostname)
        row.tier, row.version, row.registered, row.seen = tier.id, hello.version, now, now
        session.merge(row)
    world.bell.ring()
    return WorkerWelcome(tier=tier.id, poll_s=min(POLL_S, world.settings.worker.lease_s / 3))


def admit(world: World, caller: Identity, request: ClaimRequest) -> ClaimRequest:
    """The question of a registered worker, with its tier; 409 for one that has to register (again)."""
    tier = _open_tier(world, caller, request.tier)
    if request.run_id is not None:
        raise RefusedError(422, "bad-request", "a worker of a pool takes the next run; it cannot choose one")
    with world.store.write() as session:
        row = session.get(WorkerRow, request.worker_id)
        if row is None or row.token_id != caller.token_id or row.tier != tier.id:
            message = f"worker {request.worker_id} is not registered for tier {tier.id} with this token"
            raise RefusedError(409, "not-registered", message)
        row.seen = world.clock()
    return request.model_copy(update={"tier": tier.id})


def leave(world: World, caller: Identity, worker_id: str) -> None:
    """Forget a worker that has ended in good order."""
    with world.store.write() as session:
        row = session.get(WorkerRow, worker_id)
        if row is not None and row.token_id == caller.token_id:
            session.delete(row)


def present(session: Session, world: World) -> frozenset[str]:
    """The tiers for which a worker of another machine was heard of within a lease."""
    since = world.clock() - world.settings.worker.lease_s
    heard = set(session.scalars(select(WorkerRow.tier).where(WorkerRow.seen >= since)))
    working = (WorkerRow.worker_id == RunStateRow.worker_id) & (RunStateRow.heartbeat >= since)
    return frozenset(heard | set(session.scalars(select(WorkerRow.tier).join(RunStateRow, working))))


def listing(session: Session, world: World) -> tuple[WorkerStatus, ...]:
    """Every worker, of this machine and of others."""
    query = select(RunRow, RunStateRow).join(RunStateRow).where(RunStateRow.state.in_(AT_WORK))
    working = {state.worker_id: (run, state) for run, state in session.execute(query)}
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.tier, WorkerRow.worker_id)).all()
    pulling = [_pulling(row, working.pop(row.worker_id, None), world) for row in rows]
    return (*pulling, *(_local(run, state, world) for run, state in working.values()))


def _pulling(row: WorkerRow, job: tuple[RunRow, RunStateRow] | None, world: World) -> WorkerStatus:
    heartbeat = max(row.seen, (job[1].heartbeat or 0.0) if job else 0.0)
    silent = world.clock() - heartbeat > world.settings.worker.lease_s
    return WorkerStatus(
        worker_id=row.worker_id,
        hostname=row.hostname,
        tier=row.tier,
        executor="pull",
        state="lost" if silent else "busy" if job else "idle",
        version=row.version,
        heartbeat=heartbeat,
        run_id=job[0].id if job else None,
        experiment=job[0].experiment if job else None,
    )


def _local(run: RunRow, state: RunStateRow, world: World) -> WorkerStatus:
    return WorkerStatus(
        worker_id=state.worker_id or "",
        hostname="server",
        tier=queue.tier_of(run, world).id,
        executor="local",
        state="busy",
        version=VERSION,
        heartbeat=state.heartbeat or state.updated,
        run_id=run.id,
        experiment=run.experiment,
    )


def check_version(theirs: str, who: str) -> None:
    """Both halves are released together."""
    if theirs != VERSION:
        message = f"this server is {VERSION}, the {who} {theirs}: install arena-runner=={VERSION} there"
        raise RefusedError(426, "wrong-version", message, {"server": VERSION, "worker": theirs})


def check_tier(world: World, caller: Identity, name: str) -> Tier:
    """A tier of this server, if the caller's token is for it."""
    known = {tier.id: tier for tier in world.tiers.tiers}
    if name not in known:
        raise RefusedError(422, "unknown-tier", f"this server has no tier {name}; it has {', '.join(known)}")
    if caller.tier is not None and caller.tier != name:
        raise RefusedError(403, "forbidden", f"this token is for workers of tier {caller.tier}, not {name}")
    return known[name]


def _open_tier(world: World, caller: Identity, name: str) -> Tier:
    """A tier that workers of other machines do, if the caller may."""
    tier = check_tier(world, caller, name)
    if tier.executor != "pull":
        message = f"the server does the jobs of tier {name} itself; set executor: pull for it in tiers.yaml"
        raise RefusedError(422, "local-tier", message)
    return tier
