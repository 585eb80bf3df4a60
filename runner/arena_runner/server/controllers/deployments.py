"""Deployments: what should serve is loaded under a new name, probed, and only then takes over.

Every look compares desired with observed and takes the next step; nothing is remembered between looks but the
processes themselves. The revision that serves goes on until the flip, and its adapter stays for a while after it, so
that a new one that does badly under real traffic can be taken back. `rollouts` has the steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_runner import logs
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.model_servers import AdapterLine, Fleet, RolloutError
from arena_runner.server.places import Place, place_of
from arena_runner.server.probe import load, probe, probe_again
from arena_runner.server.services import rollouts
from arena_runner.server.services.look import Look, look_at
from arena_runner.server.services.targets import Waiting
from arena_runner.server.store.tables import DeploymentStateRow, ResourceRow, RevisionRow
from arena_runner.server.world import World

GRACE_S = 60.0
"""How long an adapter that does not serve any more stays loaded: requests that were on their way still find it."""
BUSY_S, IDLE_S = 0.5, 3.0
"""How often to look during a rollout, and otherwise; the bell wakes it for what cannot wait."""

log = logging.getLogger(__name__)


class DeploymentsController(Controller):
    """Keeps model servers, their adapters and the serving revisions as the deployments want them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fleet = Fleet(world)
        self._unloadable: dict[int, str] = {}
        """serving revisions that a restarted model server would not take back"""

    def reconcile(self) -> None:
        """Keep the model servers, load what serves, decide, take each rollout one step on.

        In this order, so that nothing is said to serve before its adapter is back where it was taken away: a
        deployment that returns, a model server that was restarted.
        """
        if self.world.draining.is_set():
            return
        commits = self.world.store.commits
        looks = self._looks()
        self.fleet.keep({place.key: place for place in map(self._place, _wanted(looks))})
        self.world.links.proofs.forget_but(tuple(self.world.links.model_servers.values()))
        self._tidy(looks)
        for namespace, name in self._living():
            with logs.about(deployment=name):
                self._decide(namespace, name)
        if self.world.store.commits != commits:  # else everything is as it was
            looks = self._looks()
        wanted = _wanted(looks)
        loading = [revision for revision in wanted if revision.state == "loading"]
        for revision in loading:
            with logs.about(deployment=revision.deployment, run_id=revision.run_id):
                self._roll_out(revision)
        watched = [look for look in looks if self._judge(look)]
        answering = self.world.links.model_servers
        busy = loading or watched or any(self._place(revision).key not in answering for revision in wanted)
        self.interval_s = BUSY_S if busy else IDLE_S

    def close(self) -> None:
        """Stop the model servers."""
        self.fleet.close()

    def _place(self, revision: RevisionRow) -> Place:
        return place_of(self.world, revision)

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
        look = look_at(session, self.world, namespace, name)
        if look is None:
            return
        now = self.world.clock()
        if isinstance(look.target, Waiting):
            rollouts.abandon(look, now)
            look.say("serving" if look.keeps_quiet else look.target.state, look.target.message)
        elif look.settled:
            rollouts.abandon(look, now)
            self._say_served(look)
        elif look.loading is None and look.held_at is None and (nobody := self._no_host(look.place)):
            look.say("serving" if look.serving else "pending", nobody)
        elif look.state.refused != look.key and not look.is_loading:
            rollouts.step(session, self.world, look, look.target)

    def _no_host(self, place: dict[str, Any] | None) -> str | None:
        """Why nothing can be served there: only hosts of other machines could."""
        tier = (place or {}).get("tier")
        if tier is None or self.world.links.hosts.present(tier, self.world.clock()):
            return None
        return f"no serving host for tier {tier}"

    def _say_served(self, look: Look) -> None:
        """Serving, or on the way back after its model server was restarted."""
        model = self._place(look.serving).key if look.serving else ""
        broken = self.fleet.broken(model)
        unloadable = self._unloadable.get(look.serving.id) if look.serving else None
        if unloadable is not None:
            look.say("held", unloadable)
        elif model in self.world.links.model_servers:
            look.say("held" if look.held_at else "serving", look.hold_message)
        elif look.serving and (nobody := self._no_host(look.serving.place)):
            look.say("pending", nobody)
        elif broken is not None:
            look.say("held", f"the model server of {model} does not start: {broken}")
        else:
            look.say("loading", f"the model server of {model} is starting")

    def _looks(self) -> list[Look]:
        with self.world.store.read() as session:
            found = [look_at(session, self.world, *address) for address in self._living()]
        return [look for look in found if look is not None]

    def _tidy(self, looks: list[Look]) -> None:
        """Give restarted model servers their adapters back; take away those nobody needs."""
        answering = _once(
            revision for look in looks for revision in look.loaded if revision.state != "loading"
        )
        kept = {revision.adapter for look in looks for revision in look.loaded} | self._in_grace(looks)
        for model in list(self.world.links.model_servers):
            with self._line(model) as line:
                if line is None:
                    continue
                there = line.loaded()
                for revision in answering:
                    if revision.adapter not in there and self._place(revision).key == model:
                        self._give_back(line, revision)
                for name in self._unneeded(line, there - kept):
                    line.unload(name)

    def _unneeded(self, line: AdapterLine, names: frozenset[str]) -> list[str]:
        """Those of `names` that nobody needs; from now on nobody switches to them."""
        if not names:
            return []
        with self.world.store.write() as session:  # in turn with those who switch
            looks = [
                look
                for look in (look_at(session, self.world, *a) for a in self._living())
                if look is not None
            ]
            kept = {revision.adapter for look in looks for revision in look.loaded} | self._in_grace(looks)
            gone = sorted(names - kept)
            for name in gone:
                self.world.links.proofs.drop(line.server, name)
        return gone

    def _give_back(self, line: AdapterLine, revision: RevisionRow) -> None:
        if revision.state == "superseded" and revision.id in self._unloadable:
            return  # nobody waits for it
        try:
            load(self.world, line, revision)
        except RolloutError as problem:
            log.warning("deployment %s: %s", revision.deployment, problem)
            self._unloadable[revision.id] = f"r{revision.number} cannot be loaded again: {problem}"
        else:
            self._unloadable.pop(revision.id, None)

    def _in_grace(self, looks: list[Look]) -> set[str]:
        """Adapters that answered a moment ago; with `recreate` their memory is wanted at once."""
        beside = [look.name for look in looks if look.rollout.type != "recreate"]
        fresh = RevisionRow.updated > self.world.clock() - GRACE_S
        query = select(RevisionRow).where(RevisionRow.state.in_(("superseded", "failed")), fresh)
        with self.world.store.read() as session:
            return {r.adapter for r in session.scalars(query) if (r.namespace, r.deployment) in beside}

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
        model = self._place(revision).key
        self._check_patience(revision, model)
        probed = False
        with self._line(model) as line:
            if line is not None:
                self._probe(line, revision)
                probed = True
        return probed

    def _probe(self, line: AdapterLine, revision: RevisionRow) -> None:
        proofs = self.world.links.proofs
        if proofs.holds(line.server, revision.adapter):
            probe_again(self.world, line, revision)
            return
        load(self.world, line, revision)
        self._say(revision, "probing", f"probing {revision.checkpoint}")
        probe(self.world, line, revision)
        proofs.note(line.server, revision.adapter)
        log.info("deployment %s: r%d is proved", revision.deployment, revision.number)

    def _check_patience(self, revision: RevisionRow, model: str) -> None:
        broken = self.fleet.broken(model)
        if broken is not None:
            raise RolloutError(f"the model server of {model} does not start: {broken}")
        with self.world.store.read() as session:
            look = look_at(session, self.world, revision.namespace, revision.deployment)
        if look is not None and self.world.clock() - revision.updated > look.rollout.deadline:
            raise RolloutError(f"it did not load within {look.rollout.deadline:g} s")

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
        """A probed revision takes over, or gets its share of the sessions first."""
        with self.world.store.write() as session:
            shares = rollouts.take_share(session, self.world, revision)
            serves = not shares and rollouts.take_over(session, self.world, revision)
        if serves or shares:
            does = "serves" if serves else "is watched: canary"
            log.info(
                "deployment %s %s r%d %s", revision.deployment, does, revision.number, revision.checkpoint
            )
            self.world.bell.ring()

    def _fail(self, revision: RevisionRow, why: str) -> None:
        log.warning("deployment %s: r%d failed: %s", revision.deployment, revision.number, why)
        with self.world.store.write() as session:
            rollouts.fail(session, self.world, revision, why)
        self.world.bell.ring()

    def _judge(self, look: Look) -> bool:
        """Look at how a canary, or what took over a moment ago, does under real traffic; whether it is watched."""
        watched = look.loading if look.loading is not None and look.loading.state == "canary" else None
        if watched is None and look.before is not None and look.held_at is None:
            watched = look.serving
        if watched is None:
            return False
        canary = watched.state == "canary"
        over = self.world.clock() - watched.updated >= look.rollout.watch
        bad = rollouts.verdict(self.world.links.traffic.tally(look.name, watched.number), look.rollout)
        if bad is not None and look.rollout.auto_rollback and (canary or not over):
            self._fail(watched, bad)
        elif canary:
            self._go_on(watched, bad, over=over)
        return not over

    def _go_on(self, canary: RevisionRow, bad: str | None, *, over: bool) -> None:
        """A canary that may stay: it takes over in time, unless it does badly and only people may decide."""
        with self.world.store.write() as session:
            look = look_at(session, self.world, canary.namespace, canary.deployment)
            if look is None or look.loading is None or look.loading.id != canary.id:
                return
            if bad is not None:
                look.say(
                    "held", f"r{canary.number} {canary.checkpoint} keeps its share of the sessions: {bad}"
                )
            elif over:
                rollouts.take_over(session, self.world, canary)
            else:
                rollouts.tell_share(look, look.loading)


def _wanted(looks: Iterable[Look]) -> list[RevisionRow]:
    """The revisions whose model servers should run."""
    return _once(revision for look in looks for revision in look.wanted)


def _once(revisions: Iterable[RevisionRow]) -> list[RevisionRow]:
    return list({revision.id: revision for revision in revisions}.values())
