"""Runs: start a worker where one is missing, notice when one is gone, stop what has spent its time.

Everything is read from the store and from the operating system at every look, so a restarted server takes over
the workers of its predecessor without being told.
"""

from __future__ import annotations

import logging
import signal
from dataclasses import replace

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import JobInputs, RunState
from arena_runner import logs
from arena_runner.server import processes
from arena_runner.server.choice import NoCheckpointError, choose
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.processes import Identity
from arena_runner.server.services import budgets, claims, hub_rows, notes, purging, queue, runs, workers
from arena_runner.server.services.experiments import current_version
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import ResourceRow, RunStateRow
from arena_runner.server.world import World

CLAIM_LOST_S = 300.0
"""A worker that has not claimed by then never will."""
LEAVE_S = 60.0
"""How long a worker may live on after its run has ended."""
DRAIN_S = 10.0
OVERRUN_S = 120.0
"""How far the iteration at work may outlast the budget."""
TIDY_S = 3600.0

log = logging.getLogger(__name__)


class RunsController(Controller):
    """One look at every run that has not ended or still has a worker."""

    def __init__(self, world: World, executor: LocalExecutor) -> None:
        super().__init__(world)
        self.executor = executor
        self._since = world.clock()
        self._tidied = 0.0

    def reconcile(self) -> None:
        """Watch the workers there are, then start those that are missing."""
        for run_id in self._open_runs():
            with logs.about(run_id=run_id):
                self._watch(run_id)
        if not self.world.draining.is_set():
            self._start_missing()
        purging.collect(self.world)
        self._tidy()

    def drain(self) -> None:
        """Stop every worker, giving it time to save; their runs continue at the next start."""
        with self.world.store.read() as session:
            alive = [i for i in map(_identity, _with_worker(session)) if i is not None]
        processes.stop_all(alive, DRAIN_S)
        with self.world.store.write() as session:
            for state in _with_worker(session):
                if state.state in runs.AT_WORK:
                    _requeue_drained(runs.get(session, state.run_id), self.world.clock())
                state.worker_pid = state.worker_started = None

    def _open_runs(self) -> list[str]:
        with self.world.store.read() as session:
            states = (RunState.QUEUED, *runs.AT_WORK)
            is_open = or_(RunStateRow.state.in_(states), RunStateRow.worker_pid.is_not(None))
            return list(session.scalars(select(RunStateRow.run_id).where(is_open)))

    def _watch(self, run_id: str) -> None:
        with self.world.store.read() as session:
            pair = runs.get(session, run_id)
        identity, now = _identity(pair.state), self.world.clock()
        gone = identity is not None and not identity.alive()
        silent = self._silent(pair, now)
        if silent and identity is not None:
            log.warning("its worker (pid %d) is silent; killing it", identity.pid)
            identity.signal(signal.SIGKILL, group=True)
            identity.wait(5.0)
        if identity is not None and (gone or silent):
            self._bury(run_id, identity, "its worker process ended" if gone else "its worker fell silent")
        elif silent:
            self._expire(pair)
        elif pair.state.state in runs.AT_WORK:
            self._watch_budget(pair, now)

    def _watch_budget(self, pair: RunPair, now: float) -> None:
        """Ask a run that has spent its budget to stop; one that cannot hear it is cut off a little later."""
        late = -(budgets.left_s(pair, now) or 0.0)
        asked = pair.run.wanted == "stop"
        if budgets.exceeded(pair, now) is None or (asked and late < OVERRUN_S):
            return
        identity = _identity(pair.state) if asked else None
        with self.world.store.write() as session:
            fresh = runs.get(session, pair.run.id)
            if fresh.state.fence != pair.state.fence:
                return  # it has ended meanwhile
            if asked:
                log.warning("its iteration outlasts the budget by %d s; cut off", late)
                runs.settle_stop(fresh, now)
            else:
                runs.stop(fresh, "budget", now)
        if identity is not None:
            identity.signal(signal.SIGKILL, group=True)

    def _expire(self, pair: RunPair) -> None:
        """Take the job of a worker that is no process of this machine; it is refused when it wakes."""
        now = self.world.clock()
        with self.world.store.write() as session:
            fresh = runs.get(session, pair.run.id)
            if fresh.state.fence != pair.state.fence or not self._silent(fresh, now):
                return  # it has spoken, or somebody else has the job
            log.warning("its worker %s was silent for a lease", fresh.state.worker_id)
            runs.lose_worker(fresh, f"its worker {fresh.state.worker_id} fell silent", now)
        self.world.bell.ring()

    def _bury(self, run_id: str, identity: Identity, why: str) -> None:
        processes.sweep(identity)
        last = self.executor.last_words(run_id)
        with self.world.store.write() as session:
            pair = runs.get(session, run_id)
            if _identity(pair.state) != identity:
                return  # another step was faster
            lost = pair.state.state in runs.AT_WORK or _never_claimed(pair)
            pair.state.worker_pid = pair.state.worker_started = None
            if lost:
                log.warning("%s; its last line: %s", why, last)
                runs.lose_worker(pair, f"{why} ({last})" if last else why, self.world.clock())
        self.executor.forget(run_id)
        self.world.bell.ring()

    def _start_missing(self) -> None:
        with self.world.store.read() as session:
            if all(pair.state.worker_pid is not None for pair in queue.waiting(session)):
                return  # the usual case takes no lock
        with self.world.store.write() as session:
            ready = self._ready(session)
        for pair in ready:
            with logs.about(run_id=pair.run.id, request_id=pair.run.request_id):
                self._start(pair)

    def _ready(self, session: Session) -> list[RunPair]:
        """Runs for which a worker is to be started here and now; the others say what they wait for."""
        load, pulling = dict(queue.loads(session, self.world)), workers.present(session, self.world)
        ready = []
        for pair in queue.waiting(session):
            if pair.state.worker_pid is not None:
                continue
            tier = queue.tier_of(pair.run, self.world)
            obstacle = resolve_base(session, pair) or hub_rows.obstacle(session, pair.run)
            obstacle = obstacle or queue.obstacle(tier, load[tier.id])
            if obstacle is None and tier.executor == "local":
                load[tier.id] = replace(load[tier.id], jobs=load[tier.id].jobs + 1)
                ready.append(pair)
                continue
            if obstacle is None and tier.id not in pulling:
                queue.say_alone(pair, tier)
            else:
                queue.say(pair, obstacle)
        return ready

    def _silent(self, pair: RunPair, now: float) -> bool:
        """Whether the worker lost its job by silence; while no server listened, nobody was silent."""
        state = pair.state
        if state.state in runs.AT_WORK:
            heard = max(state.heartbeat or 0.0, self._since)
            return now - heard > self.world.settings.worker.lease_s
        if state.worker_pid is None:
            return False
        return now - state.updated > (LEAVE_S if RunState(state.state).ended else CLAIM_LOST_S)

    def _tidy(self) -> None:
        """Now and then, forget claims that nobody can mistake for living ones any more."""
        now = self.world.clock()
        if now - self._tidied > TIDY_S:
            self._tidied = now
            with self.world.store.write() as session:
                claims.forget_old(session, now)

    def _start(self, pair: RunPair) -> None:
        run_id = pair.run.id
        try:
            identity = self.executor.start(run_id, notes.of(pair, self.world))
        except OSError as problem:
            with self.world.store.write() as session:
                why = f"a worker cannot be started ({problem})"
                runs.lose_worker(runs.get(session, run_id), why, self.world.clock())
            return
        log.info("started a worker, pid %d", identity.pid)
        with self.world.store.write() as session:
            state = runs.get(session, run_id).state
            state.worker_pid, state.worker_started = identity.pid, identity.started
            state.starts = pair.state.segments + 1
            state.updated = self.world.clock()


def resolve_base(session: Session, pair: RunPair) -> str | None:
    """Fill in the start weights once their run has completed; else say what is waited for."""
    inputs = JobInputs.model_validate(pair.run.inputs)
    if inputs.base is None or inputs.base.files:
        return None
    name = inputs.base.experiment
    query = select(ResourceRow).where(ResourceRow.kind == "experiment", ResourceRow.name == name)
    spaces = {r.namespace: r for r in session.scalars(query.where(~ResourceRow.retired))}
    row = spaces.get(pair.run.namespace) or spaces.get("main")
    version = current_version(session, row) if row else None
    if version is None or version.run_id is None:
        return f"waits for experiment/{name}, its base, which does not exist"
    base = runs.get(session, version.run_id)
    if base.state.state != RunState.COMPLETED:
        return f"waits for experiment/{name}, its base, whose run {base.run.id} is {base.state.state}"
    exports = runs.checkpoints_of(session, [base.run.id]).get(base.run.id, ())
    try:
        chosen = choose(inputs.base.checkpoint, exports)
    except NoCheckpointError as problem:
        return f"waits for experiment/{name}, its base: {problem}"
    filled = inputs.base.model_copy(update={"files": chosen.files})
    pair.run.inputs = inputs.model_copy(update={"base": filled}).model_dump(mode="json")
    return None


def _identity(state: RunStateRow) -> Identity | None:
    if state.worker_pid is None or state.worker_started is None:
        return None
    return Identity(state.worker_pid, state.worker_started)


def _with_worker(session: Session) -> list[RunStateRow]:
    return list(session.scalars(select(RunStateRow).where(RunStateRow.worker_pid.is_not(None))))


def _never_claimed(pair: RunPair) -> bool:
    return pair.state.state == RunState.QUEUED and pair.state.segments < pair.state.starts


def _requeue_drained(pair: RunPair, now: float) -> None:
    if pair.run.wanted == "stop":
        runs.settle_stop(pair, now)
    else:
        runs.requeue(pair, "the server was stopped; continues when it is started", now)
