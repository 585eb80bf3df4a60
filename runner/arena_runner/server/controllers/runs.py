"""Runs: start a worker where one is missing, notice when one is gone, stop what has spent its time.

Everything is read from the store and from the operating system at every look, so a restarted server takes over
the workers of its predecessor without being told.
"""

from __future__ import annotations

import logging
import signal
from collections import Counter

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import JobInputs, RunState
from arena_gitops.spec.wire import ExperimentSpec
from arena_runner import logs
from arena_runner.server import processes
from arena_runner.server.choice import NoCheckpointError, choose
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.executors.local import LocalExecutor
from arena_runner.server.processes import Identity
from arena_runner.server.services import jobs, runs
from arena_runner.server.services.experiments import current_version
from arena_runner.server.services.runs import RunPair
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import ResourceRow, RunRow, RunStateRow
from arena_runner.server.world import World

HEARTBEAT_LOST_S = 60.0
CLAIM_LOST_S = 300.0
"""A worker that has not claimed by then never will."""
LEAVE_S = 60.0
"""How long a worker may live on after its run has ended."""
DRAIN_S = 10.0

log = logging.getLogger(__name__)


class RunsController(Controller):
    """One look at every run that has not ended or still has a worker."""

    def __init__(self, world: World, executor: LocalExecutor) -> None:
        super().__init__(world)
        self.executor = executor

    def reconcile(self) -> None:
        """Watch the workers there are, then start those that are missing."""
        for run_id in self._open_runs():
            with logs.about(run_id=run_id):
                self._watch(run_id)
        if not self.world.draining.is_set():
            self._start_missing()

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
        silent = _silent(pair, now)
        if silent and identity is not None:
            log.warning("its worker (pid %d) is silent; killing it", identity.pid)
            identity.signal(signal.SIGKILL, group=True)
            identity.wait(5.0)
        if gone or silent:
            self._bury(run_id, identity, "its worker process ended" if gone else "its worker fell silent")
        elif _overdue(pair, now):
            with self.world.store.write() as session:
                runs.stop(runs.get(session, run_id), "budget", now)

    def _bury(self, run_id: str, identity: Identity | None, why: str) -> None:
        if identity is not None:
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
            if all(pair.state.worker_pid is not None for pair in _waiting(session)):
                return  # the usual case takes no lock
        with self.world.store.write() as session:
            ready = [pair for pair in _waiting(session) if self._prepare(session, pair)]
            busy = Counter(self._tier(run) for run in _runs_with_worker(session))
        slots = {tier.id: tier.slots for tier in self.world.tiers.tiers}
        for pair in ready:
            tier = self._tier(pair.run)
            if busy[tier] < slots[tier]:
                busy[tier] += 1
                with logs.about(run_id=pair.run.id, request_id=pair.run.request_id):
                    self._start(pair)

    def _prepare(self, session: Session, pair: RunPair) -> bool:
        """Whether a worker can begin; resolves the start weights, and says what is waited for."""
        if pair.state.worker_pid is not None:
            return False
        waiting_for = resolve_base(session, pair)
        if waiting_for:
            _say(pair, waiting_for)
        return waiting_for is None

    def _tier(self, run: RunRow) -> str:
        return resolve_tier(run.tier, self.world.tiers)[0].id

    def _start(self, pair: RunPair) -> None:
        run_id = pair.run.id
        try:
            identity = self.executor.start(run_id, _notes(pair, self.world))
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


def _runs_with_worker(session: Session) -> list[RunRow]:
    query = select(RunRow).join(RunStateRow).where(RunStateRow.worker_pid.is_not(None))
    return list(session.scalars(query))


def _waiting(session: Session) -> list[RunPair]:
    query = select(RunRow, RunStateRow).join(RunStateRow).order_by(RunRow.created)
    query = query.where(RunStateRow.state == RunState.QUEUED, RunRow.wanted == "run")
    return [RunPair(*row) for row in session.execute(query)]


def _never_claimed(pair: RunPair) -> bool:
    return pair.state.state == RunState.QUEUED and pair.state.segments < pair.state.starts


def _silent(pair: RunPair, now: float) -> bool:
    state = pair.state
    if state.state in runs.AT_WORK:
        return state.heartbeat is not None and now - state.heartbeat > HEARTBEAT_LOST_S
    if state.worker_pid is None:
        return False
    return now - state.updated > (LEAVE_S if RunState(state.state).ended else CLAIM_LOST_S)


def _overdue(pair: RunPair, now: float) -> bool:
    limit, claimed = pair.run.max_runtime_s, pair.state.claimed
    if limit is None or claimed is None or pair.run.wanted == "stop":
        return False
    return pair.state.spent_s + now - claimed > limit


def _requeue_drained(pair: RunPair, now: float) -> None:
    if pair.run.wanted == "stop":
        runs.settle_stop(pair, now)
    else:
        runs.requeue(pair, "the server was stopped; continues when it is started", now)


def _say(pair: RunPair, message: str) -> None:
    if pair.state.message != message:
        pair.state.message = message


def _notes(pair: RunPair, world: World) -> tuple[str, ...]:
    """What this server does differently from what was asked for."""
    run, spec = pair.run, ExperimentSpec.model_validate(pair.run.spec)
    notes = [resolve_tier(run.tier, world.tiers)[1]]
    if spec.num_nodes > 1:
        notes.append(f"num_nodes {spec.num_nodes} is clamped to 1: this server runs a job on one machine")
    model = jobs.model_of(pair, world)
    if model is not None and spec.model is not None and model.id != spec.model.id:
        notes.append(f"base model {spec.model.id} is exchanged for {model.id} (settings.yaml: models.map)")
    steps = jobs.effective_max_steps(run, world)
    if steps < run.max_steps:
        notes.append(f"max_steps {run.max_steps} is capped at {steps} (settings.yaml: limits.max_steps)")
    return tuple(note for note in notes if note)
