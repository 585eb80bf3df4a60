"""Deployments: what should serve is loaded under a new name, probed, and only then takes over.

Every look compares desired with observed and takes the next step; nothing is remembered between looks but the
processes themselves. The revision that serves goes on until the flip, and its adapter stays for a while after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import ModelRef
from arena_runner import logs
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.model_servers import AdapterLine, Fleet, RolloutError
from arena_runner.server.probe import load, probe
from arena_runner.server.services import jobs, runs, targets
from arena_runner.server.services.targets import Target, Waiting
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow
from arena_runner.server.world import World

GRACE_S = 60.0
"""How long a superseded adapter stays loaded: requests that were on their way still find it."""
LOAD_S = 900.0
"""A rollout that has not come to its probe by then is given up."""
BUSY_S, IDLE_S = 0.5, 3.0
"""How often to look during a rollout, and otherwise; the bell wakes it for what cannot wait."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """One deployment as it is seen now."""

    row: ResourceRow
    state: DeploymentStateRow
    serving: RevisionRow | None
    loading: RevisionRow | None
    target: Target | Waiting

    @property
    def held_at(self) -> int | None:
        """The revision a rollback named, as long as it holds."""
        return int(self.state.hold["revision"]) if self.state.hold else None

    @property
    def settled(self) -> bool:
        """Whether what should serve does."""
        serving, target = self.serving, self.target
        if self.held_at is not None:
            return serving is not None and serving.number == self.held_at
        return (
            serving is not None
            and isinstance(target, Target)
            and (serving.run_id, serving.digest) == (target.run.id, target.checkpoint.digest)
        )

    @property
    def key(self) -> str:
        """What a failed rollout is not tried again for."""
        return f"{self.row.etag} {self.target.checkpoint.digest if isinstance(self.target, Target) else ''}"


class DeploymentsController(Controller):
    """Keeps model servers, their adapters and the serving revisions as the deployments want them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fleet = Fleet(world)
        self._unloadable: dict[int, str] = {}
        """serving revisions that a restarted model server would not take back"""

    def reconcile(self) -> None:
        """Decide, keep the model servers, load what serves, take each rollout one step on."""
        if self.world.draining.is_set():
            return
        for namespace, name in self._living():
            with logs.about(deployment=name):
                self._decide(namespace, name)
        kept = self._kept()
        self.fleet.keep({ref.id: ref for ref in (_model(revision) for revision in kept)})
        self._tidy(kept)
        rollouts = [revision for revision in kept if revision.state == "loading"]
        for revision in rollouts:
            with logs.about(deployment=revision.deployment, run_id=revision.run_id):
                self._roll_out(revision)
        answering = self.world.links.model_servers
        busy = rollouts or any(_model(revision).id not in answering for revision in kept)
        self.interval_s = BUSY_S if busy else IDLE_S

    def close(self) -> None:
        """Stop the model servers."""
        self.fleet.close()

    def _living(self) -> list[tuple[str, str]]:
        query = select(ResourceRow.namespace, ResourceRow.name)
        query = query.where(ResourceRow.kind == "deployment", ~ResourceRow.retired)
        with self.world.store.read() as session:
            return [(namespace, name) for namespace, name in session.execute(query)]

    def _decide(self, namespace: str, name: str) -> None:
        """Take the next step in the store; where there is none, the usual case, no lock is taken."""
        with self.world.store.read() as session:
            self._step(session, namespace, name)
            idle = not session.new and not session.dirty
        if not idle:
            with self.world.store.write() as session:
                self._step(session, namespace, name)

    def _step(self, session: Session, namespace: str, name: str) -> None:
        look = _look(session, namespace, name)
        if look is None:
            return
        if isinstance(look.target, Waiting):
            _abandon(look, self.world.clock())
            _say(look, "serving" if _keeps_quiet(look) else look.target.state, look.target.message)
        elif look.settled:
            _abandon(look, self.world.clock())
            self._say_served(look)
        elif look.state.refused != look.key and not _is_loading(look):
            _abandon(look, self.world.clock())
            if look.held_at is None:
                _begin(session, self.world, look, look.target)
            else:
                _return_to(session, look, look.held_at, self.world.clock())

    def _say_served(self, look: Look) -> None:
        """Serving, or on the way back after its model server was restarted."""
        model = _model(look.serving).id if look.serving else ""
        broken = self.fleet.broken(model)
        unloadable = self._unloadable.get(look.serving.id) if look.serving else None
        if unloadable is not None:
            _say(look, "held", unloadable)
        elif model in self.world.links.model_servers:
            _say(look, "held" if look.held_at else "serving", _hold_message(look))
        elif broken is not None:
            _say(look, "held", f"the model server of {model} does not start: {broken}")
        else:
            _say(look, "loading", f"the model server of {model} is starting")

    def _kept(self) -> list[RevisionRow]:
        """The revisions whose adapters should be on a model server."""
        with self.world.store.read() as session:
            looks = [_look(session, *address) for address in self._living()]
        found = [r for look in looks if look for r in (look.serving, look.loading) if r is not None]
        return list({(r.namespace, r.deployment, r.number): r for r in found}.values())

    def _tidy(self, kept: list[RevisionRow]) -> None:
        """Give restarted model servers their serving adapters back; take away those nobody needs."""
        for model in list(self.world.links.model_servers):
            with self._line(model) as line:
                if line is None:
                    continue
                there = line.loaded()
                for revision in kept:
                    missing = revision.state == "serving" and revision.adapter not in there
                    if missing and _model(revision).id == model:
                        self._give_back(line, revision)
                for name in there - {r.adapter for r in kept} - self._in_grace():
                    line.unload(name)

    def _give_back(self, line: AdapterLine, revision: RevisionRow) -> None:
        try:
            load(self.world, line, revision)
        except RolloutError as problem:
            log.warning("deployment %s: %s", revision.deployment, problem)
            self._unloadable[revision.id] = f"r{revision.number} cannot be loaded again: {problem}"
        else:
            self._unloadable.pop(revision.id, None)

    def _in_grace(self) -> frozenset[str]:
        fresh = RevisionRow.updated > self.world.clock() - GRACE_S
        query = select(RevisionRow.adapter).where(RevisionRow.state == "superseded", fresh)
        with self.world.store.read() as session:
            return frozenset(session.scalars(query))

    def _roll_out(self, revision: RevisionRow) -> None:
        try:
            probed = self._load_and_probe(revision)
        except RolloutError as problem:
            self._fail(revision, str(problem))
        else:
            if probed:
                self._flip(revision)

    def _load_and_probe(self, revision: RevisionRow) -> bool:
        """Whether the revision is loaded and answers; False while its model server does not."""
        model = _model(revision).id
        self._check_patience(revision, model)
        probed = False
        with self._line(model) as line:
            if line is not None:
                load(self.world, line, revision)
                self._say(revision, "probing", f"probing {revision.checkpoint}")
                probe(self.world, line, revision)
                probed = True
        return probed

    def _check_patience(self, revision: RevisionRow, model: str) -> None:
        broken = self.fleet.broken(model)
        if broken is not None:
            raise RolloutError(f"the model server of {model} does not start: {broken}")
        if self.world.clock() - revision.updated > LOAD_S:
            raise RolloutError(f"it did not load within {LOAD_S:g} s")

    @contextmanager
    def _line(self, model: str) -> Iterator[AdapterLine | None]:
        """A line to a model server; one that breaks off is looked at again at the next look."""
        line = self.fleet.line(model)
        try:
            yield line
        except httpx.TransportError as problem:
            log.warning("the model server of %s broke off: %s", model, problem)
        finally:
            if line is not None:
                line.close()

    def _say(self, revision: RevisionRow, state: str, message: str) -> None:
        with self.world.store.write() as session:
            row = session.get_one(DeploymentStateRow, (revision.namespace, revision.deployment))
            row.state, row.message, row.updated = state, message, self.world.clock()

    def _flip(self, revision: RevisionRow) -> None:
        now = self.world.clock()
        with self.world.store.write() as session:
            new = session.get_one(RevisionRow, revision.id)
            state = session.get_one(DeploymentStateRow, (revision.namespace, revision.deployment))
            if new.state != "loading" or state.state == "undeployed":
                return  # the world moved while we probed
            if (old := _revision(session, state)) is not None:
                old.state, old.updated = "superseded", now
            new.state, new.message, new.updated = "serving", "", now
            state.state, state.message, state.revision, state.updated = "serving", "", new.number, now
        log.info("deployment %s serves r%d %s", revision.deployment, revision.number, revision.checkpoint)
        self.world.bell.ring()

    def _fail(self, revision: RevisionRow, why: str) -> None:
        log.warning("deployment %s: r%d failed: %s", revision.deployment, revision.number, why)
        with self.world.store.write() as session:
            look = _look(session, revision.namespace, revision.deployment)
            failed = session.get_one(RevisionRow, revision.id)
            failed.state, failed.message, failed.updated = "failed", why, self.world.clock()
            if look is None:
                return
            keeps = (
                f"; r{look.serving.number} {look.serving.checkpoint} keeps serving" if look.serving else ""
            )
            look.state.refused = look.key
            _say(look, "held", f"rollout of r{failed.number} {failed.checkpoint} failed: {why}{keeps}")


def _look(session: Session, namespace: str, name: str) -> Look | None:
    query = select(ResourceRow).where(ResourceRow.kind == "deployment", ResourceRow.namespace == namespace)
    row = session.scalar(query.where(ResourceRow.name == name, ~ResourceRow.retired))
    state = session.get(DeploymentStateRow, (namespace, name))
    if row is None or state is None:
        return None
    serving = _revision(session, state)
    loading = select(RevisionRow).where(RevisionRow.namespace == namespace, RevisionRow.deployment == name)
    newest = session.scalar(loading.where(RevisionRow.state == "loading").order_by(RevisionRow.number.desc()))
    return Look(row, state, serving, newest, targets.find(session, row, state, serving))


def _revision(session: Session, state: DeploymentStateRow) -> RevisionRow | None:
    query = select(RevisionRow).where(RevisionRow.namespace == state.namespace)
    query = query.where(RevisionRow.deployment == state.name, RevisionRow.number == state.revision)
    return session.scalar(query)


def _begin(session: Session, world: World, look: Look, target: Target) -> None:
    """A new revision, to be loaded."""
    now, row = world.clock(), look.row
    known = select(func.max(RevisionRow.number)).where(RevisionRow.namespace == row.namespace)
    number = (session.scalar(known.where(RevisionRow.deployment == row.name)) or 0) + 1
    model = jobs.model_of(runs.get(session, target.run.id), world)
    if model is None:
        look.state.refused = look.key
        _say(look, "held", f"run {target.run.id} names no base model to serve its adapter on")
        return
    place = row.name if row.namespace == "main" else f"{row.namespace}.{row.name}"
    revision = RevisionRow(namespace=row.namespace, deployment=row.name, number=number, run_id=target.run.id)
    revision.version, revision.digest, revision.files = (
        target.version,
        target.checkpoint.digest,
        dict(target.checkpoint.files),
    )
    revision.step, revision.member = target.checkpoint.step, target.checkpoint.member
    revision.model, revision.adapter = model.model_dump(mode="json"), f"{place}.r{number}"
    revision.state, revision.message, revision.created, revision.updated = "loading", "", now, now
    session.add(revision)
    _say(look, "loading", f"loading {target.checkpoint.label} on {model.id}")


def _return_to(session: Session, look: Look, number: int, now: float) -> None:
    """An earlier revision is loaded again, under its own number."""
    query = select(RevisionRow).where(RevisionRow.namespace == look.row.namespace)
    query = query.where(RevisionRow.deployment == look.row.name, RevisionRow.number == number)
    revision = session.scalars(query).one()
    revision.state, revision.message, revision.updated = "loading", "", now
    _say(look, "loading", f"going back to r{number} {revision.checkpoint}")


def _hold_message(look: Look) -> str:
    hold = look.state.hold
    if not hold:
        return ""
    return f"held at r{hold['revision']}, instead of r{hold['wanted']}: rolled back by {hold['by']}"


def _abandon(look: Look, now: float) -> None:
    """A rollout that is not wanted any more."""
    if look.loading is not None:
        look.loading.state, look.loading.updated = "failed", now
        look.loading.message = "not wanted any more"


def _is_loading(look: Look) -> bool:
    loading, target = look.loading, look.target
    if look.held_at is not None:
        return loading is not None and loading.number == look.held_at
    return (
        loading is not None
        and isinstance(target, Target)
        and (loading.run_id, loading.digest) == (target.run.id, target.checkpoint.digest)
    )


def _keeps_quiet(look: Look) -> bool:
    """A serving deployment that waits for a run goes on serving; one that is held says so."""
    return look.serving is not None and isinstance(look.target, Waiting) and look.target.state == "pending"


def _say(look: Look, state: str, message: str) -> None:
    if (look.state.state, look.state.message) != (state, message):
        look.state.state, look.state.message = state, message


def _model(revision: RevisionRow) -> ModelRef:
    return ModelRef.model_validate(revision.model)
