"""The steps of a rollout as changes of rows: begin, go back, take a share, take over, be taken back, fail.

`blue_green` and `canary` load the new revision beside the old one; `recreate` gives the old one's memory back first and
serves nothing meanwhile. A canary answers its share of the sessions until it has been watched for long enough.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import ModelRef
from arena_gitops.spec.serving import Rollout
from arena_runner.server.services import jobs, runs
from arena_runner.server.services.look import Look, look_at, numbered, server_of
from arena_runner.server.services.targets import Target
from arena_runner.server.store.tables import DeploymentStateRow, RevisionRow
from arena_runner.server.traffic import Tally
from arena_runner.server.world import World
from arena_runner.serving.policy_protocol import POLICIES, POLICY_FILES


def step(session: Session, world: World, look: Look, target: Target) -> RevisionRow | None:
    """What should serve is put on its way, in the place of anything else that was; None where nothing can be."""
    abandon(look, world.clock())
    if look.held_at is None:
        return begin(session, world, look, target)
    return return_to(session, look, look.held_at, world.clock())


def shown(session: Session, world: World, look: Look, target: Target) -> RevisionRow | None:
    """A revision of the same export that its model server holds and has proved: its adapter can answer at once."""
    mine = select(RevisionRow).where(RevisionRow.namespace == look.row.namespace)
    mine = mine.where(RevisionRow.deployment == look.row.name)
    if look.held_at is not None:
        mine = mine.where(RevisionRow.number == look.held_at)
    else:
        mine = mine.where(RevisionRow.run_id == target.run.id, RevisionRow.digest == target.checkpoint.digest)
    for revision in session.scalars(mine.order_by(RevisionRow.number.desc())):
        there = look.held_at is not None or revision.place == look.place
        if there and world.links.proofs.holds(server_of(world, revision), revision.adapter):
            return revision
    return None


def begin(session: Session, world: World, look: Look, target: Target) -> RevisionRow | None:
    """A new revision, to be loaded."""
    now, row = world.clock(), look.row
    known = select(func.max(RevisionRow.number)).where(RevisionRow.namespace == row.namespace)
    number = (session.scalar(known.where(RevisionRow.deployment == row.name)) or 0) + 1
    acts = all(name in target.checkpoint.files for name in POLICY_FILES)
    model = ModelRef(id=POLICIES) if acts else jobs.model_of(runs.get(session, target.run.id), world)
    if model is None:
        look.state.refused = look.key
        look.say("held", f"run {target.run.id} names no base model to serve its adapter on")
        return None
    place = row.name if row.namespace == "main" else f"{row.namespace}.{row.name}"
    revision = RevisionRow(namespace=row.namespace, deployment=row.name, number=number, run_id=target.run.id)
    revision.version, revision.digest, revision.files = (
        target.version,
        target.checkpoint.digest,
        dict(target.checkpoint.files),
    )
    revision.step, revision.member = target.checkpoint.step, target.checkpoint.member
    revision.model, revision.place = model.model_dump(mode="json"), look.place
    revision.adapter = f"{place}.r{number}"
    revision.state, revision.message, revision.created, revision.updated = "loading", "", now, now
    if (twin := shown(session, world, look, target)) is not None and twin.files == revision.files:
        revision.adapter = twin.adapter  # the same weights, there and proved: nothing is loaded twice
    session.add(revision)
    _make_room(look, now)
    look.say("loading", f"loading {target.checkpoint.label} on {'the policy server' if acts else model.id}")
    return revision


def return_to(session: Session, look: Look, number: int, now: float) -> RevisionRow | None:
    """An earlier revision is loaded again, under its own number."""
    revision = numbered(session, look.row.namespace, look.row.name, number)
    if revision is None:
        return None
    revision.state, revision.message, revision.updated = "loading", "", now
    _make_room(look, now)
    look.say("loading", f"going back to r{number} {revision.checkpoint}")
    return revision


def abandon(look: Look, now: float) -> None:
    """A rollout that is not wanted any more."""
    if look.loading is not None:
        look.loading.state, look.loading.updated = "failed", now
        look.loading.message = "not wanted any more"


def take_share(session: Session, world: World, revision: RevisionRow) -> bool:
    """A canary gets its sessions; False where the strategy has none or there is nothing to compare with."""
    look = look_at(session, world, revision.namespace, revision.deployment)
    if look is None or look.serving is None or look.held_at is not None or look.rollout.type != "canary":
        return False
    new = session.get_one(RevisionRow, revision.id)
    if new.state != "loading":
        return False
    new.state, new.updated = "canary", world.clock()
    world.links.traffic.begin(look.name, new.number)
    tell_share(look, new)
    return True


def tell_share(look: Look, canary: RevisionRow) -> None:
    """What a canary gets, and until when."""
    until = datetime.fromtimestamp(canary.updated + look.rollout.watch, UTC)
    share = f"r{canary.number} {canary.checkpoint} answers {look.rollout.share} % of the sessions"
    look.say("probing", f"{share} until {until:%H:%M:%S} UTC")


def take_over(session: Session, world: World, revision: RevisionRow) -> bool:
    """The revision serves from now on; False when the world moved meanwhile."""
    now = world.clock()
    new = session.get_one(RevisionRow, revision.id)
    state = session.get_one(DeploymentStateRow, (revision.namespace, revision.deployment))
    if new.state not in {"loading", "canary"} or state.state == "undeployed":
        return False
    if (old := numbered(session, new.namespace, new.deployment, state.revision)) is not None:
        old.state, old.updated = "superseded", now
    if new.state == "loading":
        world.links.traffic.begin((new.namespace, new.deployment), new.number)
    new.state, new.message, new.updated = "serving", "", now
    state.state, state.message, state.revision, state.updated = "serving", "", new.number, now
    return True


def fail(session: Session, world: World, revision: RevisionRow, why: str) -> None:
    """A rollout comes to nothing: what served goes on, and the same is not tried again by itself."""
    now = world.clock()
    failed = session.get_one(RevisionRow, revision.id)
    if (was := failed.state) != revision.state:
        return  # it took over, or was given up, meanwhile
    failed.state, failed.message, failed.updated = "failed", why, now
    look = look_at(session, world, revision.namespace, revision.deployment)
    if look is None:
        return
    serves = look.serving if was != "serving" else None
    keeps = ""
    if serves is not None:
        keeps = f"; r{serves.number} {serves.checkpoint} keeps serving"
    elif (back := _last(look)) is not None:
        back.state, back.updated, look.state.revision = "serving", now, back.number
        keeps = f"; r{back.number} {back.checkpoint} serves again"
    look.state.refused = look.key
    look.say("held", f"rollout of r{failed.number} {failed.checkpoint} failed: {why}{keeps}")


def verdict(tally: Tally, rollout: Rollout) -> str | None:
    """Why a watched revision does badly; None while it does not."""
    judged = max(tally.requests, rollout.min_requests)
    if tally.failures > rollout.max_error_rate * judged:
        allowed = f"{rollout.max_error_rate:.0%} of at least {rollout.min_requests} are allowed"
        return f"{tally.failures} of {tally.requests} requests failed ({allowed})"
    first, most = tally.median_first_token_s, rollout.max_first_token
    if (
        most is not None
        and first is not None
        and len(tally.first_token_s) >= rollout.min_requests
        and first > most
    ):
        return f"half of its streams began after {first:.3g} s (at most {most:g} s)"
    return None


def _make_room(look: Look, now: float) -> None:
    """`recreate`: what serves stops before anything is loaded."""
    if look.rollout.type == "recreate" and look.serving is not None:
        look.serving.state, look.serving.updated = "superseded", now
        look.state.revision = 0


def _last(look: Look) -> RevisionRow | None:
    """What served last."""
    return next((r for r in look.residents if r.state == "superseded"), None)
