"""PUT and retire: what the owner of a resource wants becomes desired state, and the run that follows from it.

A PUT is one transaction: resource, version, run, deployment and the answer kept for its idempotency key appear
together or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.digest import Fingerprint, sha256_json
from arena_gitops.spec.resource import NAMES, Address, is_name
from arena_gitops.spec.stack import RESERVED
from arena_gitops.spec.wire import DeploymentSpec, ExperimentSpec, Owner, PutResource, ResourceDocument
from arena_runner.server.refusals import RefusedError, stale
from arena_runner.server.services import deployments, experiments, leases, purging, switching
from arena_runner.server.services.documents import document
from arena_runner.server.store.tables import IdempotencyRow, ResourceRow, VersionRow
from arena_runner.server.world import World

KEEP_ANSWERS_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Put:
    """One PUT as it came in."""

    address: Address
    body: PutResource
    etag: str | None
    """None: it must not exist yet"""
    key: str | None = None
    fence: int | None = None
    """of the lease under which it is made"""


def put(world: World, request: Put) -> ResourceDocument:
    """Make the resource so. Same key and same body: same answer, nothing started twice."""
    check_names(request.body.owner)
    spec = _parse_spec(request.address.kind, request.body.spec)
    if isinstance(spec, ExperimentSpec):
        experiments.check(world, spec)
    alias = (
        deployments.look_up_alias(world, request.body.owner, spec)
        if isinstance(spec, DeploymentSpec)
        else None
    )
    with world.store.write() as session:
        leases.guard(session, world, request.body.owner, request.fence)
        if (answer := _known_answer(session, request)) is not None:
            return answer
        if request.body.choice is not None:
            deployments.require_choice(session, request.address, alias, request.body.choice)
        row, moved = _write(session, world, request)
        if isinstance(spec, ExperimentSpec) and request.body.adopt:
            experiments.record(session, row, spec)
        elif isinstance(spec, ExperimentSpec):
            experiments.settle(session, world, row, spec, returned=moved)
        if isinstance(spec, DeploymentSpec):
            deployments.settle(session, world, row, alias, changed=moved)
        session.flush()
        answer = document(session, world, row)
        _remember(session, world, request, answer)
    if isinstance(spec, DeploymentSpec):
        switching.hurry(world, request.body.owner.namespace, request.address.name)
    else:
        world.bell.ring()
    return answer


def retire(
    world: World,
    address: Address,
    owner: Owner,
    etag: str | None,
    *,
    fence: int | None = None,
    purge: bool = False,
) -> None:
    """Forget the resource, keep its data unless it is purged. What is gone already stays gone, without error."""
    named: frozenset[str] = frozenset()
    with world.store.write() as session:
        leases.guard(session, world, owner, fence)
        row = find(session, address, owner.namespace)
        if row is None or row.retired:
            return
        check_owner(row, owner)
        if etag is not None and etag != row.etag:
            raise stale(f"{address} has changed since it was looked at (etag {row.etag}, not {etag})")
        row.retired = True
        row.generation += 1
        row.updated = world.clock()
        if address.kind == "experiment":
            experiments.leave(session, world, row, "retired")
        if address.kind == "deployment":
            deployments.retire(session, world, row)
        if purge:
            named = purging.purge(session, world, row)
    if purge:
        purging.sweep(world, named)
        purging.collect(world)
    world.bell.ring()


def forget_old_answers(world: World) -> None:
    """Answers to idempotency keys are kept for 30 days."""
    with world.store.write() as session:
        old = IdempotencyRow.created < world.clock() - KEEP_ANSWERS_S
        session.execute(delete(IdempotencyRow).where(old))


def find(session: Session, address: Address, namespace: str) -> ResourceRow | None:
    """The row of an address, retired or not."""
    query = select(ResourceRow).where(ResourceRow.namespace == namespace, ResourceRow.kind == address.kind)
    return session.scalar(query.where(ResourceRow.name == address.name))


def check_names(owner: Owner) -> None:
    """Stacks and namespaces become parts of the names of models and adapters."""
    for what, text in (("namespace", owner.namespace), ("stack", owner.stack)):
        if not is_name(text):
            raise RefusedError(422, f"bad-{what}", f"{what} {text!r} is no name: {NAMES}")


def _parse_spec(kind: str, spec: Any) -> ExperimentSpec | DeploymentSpec | None:
    models: dict[str, type[ExperimentSpec | DeploymentSpec]] = {
        "experiment": ExperimentSpec,
        "deployment": DeploymentSpec,
    }
    try:
        return models[kind].model_validate(spec) if kind in models else None
    except ValidationError as problem:
        lines = [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in problem.errors()]
        raise RefusedError(422, "bad-spec", f"the {kind}'s spec is invalid: " + "; ".join(lines)) from problem


def _known_answer(session: Session, request: Put) -> ResourceDocument | None:
    known = session.get(IdempotencyRow, request.key) if request.key else None
    row = find(session, request.address, request.body.owner.namespace)
    if known is None or row is None or row.retired:
        return None  # what was retired since is made anew: a revert asks for the same thing by the same key
    if known.body_hash != _body_hash(request):
        message = f"idempotency key {request.key} was used before with another body"
        raise RefusedError(409, "idempotency-mismatch", message)
    return ResourceDocument.model_validate(known.answer)


def _body_hash(request: Put) -> str:
    return sha256_json([str(request.address), request.body.model_dump(mode="json")])


def _remember(session: Session, world: World, request: Put, answer: ResourceDocument) -> None:
    if request.key is None:
        return
    kept = answer.model_dump(mode="json")
    row = IdempotencyRow(key=request.key, body_hash=_body_hash(request), answer=kept, created=world.clock())
    session.merge(row)


def _write(session: Session, world: World, request: Put) -> tuple[ResourceRow, bool]:
    """The row as it is now, and whether it stands at another version than before."""
    body, now = request.body, world.clock()
    row = find(session, request.address, body.owner.namespace)
    _check_etag(row, request)
    if body.adopt and row is not None and row.kind == "experiment":
        _relabel(session, row, body)
    before = None if row is None or row.retired else row.version
    if row is None:
        row = ResourceRow(
            namespace=body.owner.namespace, kind=request.address.kind, name=request.address.name
        )
        row.generation, row.created = 0, now
    row.stack, row.spec, row.rerun, row.retired = body.owner.stack, dict(body.spec), body.rerun, False
    row.fingerprint = body.fingerprint.model_dump(mode="json")
    row.provenance = body.provenance.model_dump(mode="json")
    row.generation += 1
    row.updated = now
    with session.no_autoflush:  # the row is complete only once it has its version
        row.version = _version(session, row, now)
    session.add(row)
    session.flush()
    return row, row.version != before


def _check_etag(row: ResourceRow | None, request: Put) -> None:
    if row is None or row.retired:
        if request.etag is not None or request.body.adopt:
            raise stale(f"{request.address} is gone; it was expected at etag {request.etag}")
        return
    if not (request.body.adopt and row.stack == RESERVED):
        check_owner(row, request.body.owner)
    if request.etag is None:
        raise stale(f"{request.address} exists already (etag {row.etag}); it was expected to be new")
    if request.etag != row.etag:
        raise stale(
            f"{request.address} has changed since it was looked at (etag {row.etag}, not {request.etag})"
        )


def _relabel(session: Session, row: ResourceRow, body: PutResource) -> None:
    """What is taken over counts as what its new owner says: its version gets that identity, and keeps its run."""
    version = experiments.current_version(session, row)
    same = (VersionRow.identity == body.fingerprint.run) & (VersionRow.rerun == body.rerun)
    history = select(VersionRow).where(
        VersionRow.namespace == row.namespace, VersionRow.kind == row.kind, VersionRow.name == row.name
    )
    if session.scalar(history.where(same)) is None:
        version.identity, version.rerun, version.spec = body.fingerprint.run, body.rerun, dict(body.spec)
        session.flush()


def check_owner(row: ResourceRow, owner: Owner) -> None:
    """Refuse a caller whose stack does not own the resource."""
    if row.stack != owner.stack:
        address = f"{row.kind}/{row.name}"
        message = (
            f"{address} in namespace {row.namespace} belongs to stack {row.stack!r}, not to {owner.stack!r}"
        )
        raise RefusedError(409, "owned-by-other", message, {"owner": row.stack, "address": address})


def _version(session: Session, row: ResourceRow, now: float) -> int:
    """The version this content has had before, else the next one."""
    fingerprint = Fingerprint.model_validate(row.fingerprint)
    identity = fingerprint.run if row.kind == "experiment" else fingerprint.data
    history = select(VersionRow).where(
        VersionRow.namespace == row.namespace, VersionRow.kind == row.kind, VersionRow.name == row.name
    )
    known = session.scalar(history.where(VersionRow.identity == identity, VersionRow.rerun == row.rerun))
    if known is not None:
        return known.version
    newest = session.scalar(select(func.max(history.subquery().c.version))) or 0
    version = VersionRow(namespace=row.namespace, kind=row.kind, name=row.name, version=newest + 1)
    version.identity, version.rerun, version.spec, version.created = identity, row.rerun, row.spec, now
    session.add(version)
    return version.version
