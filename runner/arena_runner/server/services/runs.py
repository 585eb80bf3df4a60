"""The life of a run: made, stopped, queued again, described.

The functions change rows of the session they are given; whoever called them commits and rings the bell.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.job import Checkpoint, FailureReason, ModelRef, RunState, RunStatus
from arena_gitops.spec.wire import ExperimentSpec
from arena_runner import logs
from arena_runner.server.choice import best
from arena_runner.server.refusals import not_found
from arena_runner.server.services import budgets, retries
from arena_runner.server.services.pair import AT_WORK as AT_WORK  # noqa: PLC0414 - a word of this module too
from arena_runner.server.services.pair import RunPair as RunPair  # noqa: PLC0414 - as above
from arena_runner.server.services.queue import UNHINDERED
from arena_runner.server.store.tables import CheckpointRow, ResourceRow, RunRow, RunStateRow, VersionRow
from arena_runner.server.summary import Summary
from arena_runner.server.world import World

USABLE = (RunState.QUEUED, RunState.VALIDATING, RunState.RUNNING, RunState.COMPLETED)
"""States of a run whose result an equal fingerprint can share."""

UNFINISHED = (RunState.STOPPED, RunState.FAILED)
"""Ended before the work was done: more time, or another place, lets the run go on."""

BY_A_PERSON = "user"
"""Cause of a stop that somebody asked for."""
MOVED = "moved"
"""Cause of a stop that is none: the run goes on in another place."""
STOPPED_BY_US = ("replaced", "retired")
"""Stop causes that no person decided: the run may start again when its version returns."""


def create(session: Session, world: World, row: ResourceRow, spec: ExperimentSpec) -> RunPair:
    """A new queued run for an experiment's current version."""
    now = world.clock()
    run = RunRow(
        id="r_" + uuid.uuid4().hex[:12],
        namespace=row.namespace,
        experiment=row.name,
        project=spec.project,
        version=row.version,
        fingerprint=Fingerprint.model_validate(row.fingerprint).run,
        rerun=row.rerun,
        spec=row.spec,
        inputs=spec.inputs.model_dump(mode="json"),
        provenance=row.provenance,
        tier=spec.tier,
        max_steps=max_steps_of(spec),
        max_runtime_s=budgets.max_runtime(spec),
        max_credits=budgets.max_credits(spec),
        wanted="run",
        request_id=logs.field("request_id"),
        created=now,
    )
    session.add(run)
    session.flush()  # the state row refers to it
    state = RunStateRow(
        run_id=run.id,
        state=RunState.QUEUED,
        message=UNHINDERED,
        segments=0,
        fence=0,
        starts=0,
        restarts=0,
        spent_s=0.0,
        spent_credits=0.0,
        retries=0,
        summary=Summary().model_dump(mode="json"),
        last_index=0,
        last_seq=0,
        updated=now,
    )
    session.add(state)
    return RunPair(run, state)


def max_steps_of(spec: ExperimentSpec) -> int:
    """`training.max_steps` of the effective manifest."""
    training = spec.manifest.get("training")
    value = training.get("max_steps") if isinstance(training, dict) else None
    return int(value) if isinstance(value, int | float) else 0


def get(session: Session, run_id: str) -> RunPair:
    """A run and its state; 404 when it does not exist."""
    run, state = session.get(RunRow, run_id), session.get(RunStateRow, run_id)
    if run is None or state is None:
        raise not_found(f"run {run_id}")
    return RunPair(run, state)


def reusable(session: Session, fingerprint: str, rerun: int) -> RunPair | None:
    """The run whose result an equal fingerprint can share: a completed one first, then the oldest."""
    query = (
        select(RunRow, RunStateRow)
        .join(RunStateRow, RunStateRow.run_id == RunRow.id)
        .where(RunRow.fingerprint == fingerprint, RunRow.rerun == rerun, RunRow.wanted == "run")
        .where(RunStateRow.state.in_(USABLE))
        .order_by((RunStateRow.state != RunState.COMPLETED).asc(), RunRow.created)
    )
    found = session.execute(query).first()
    return RunPair(*found) if found else None


def users(session: Session, run_id: str) -> list[ResourceRow]:
    """The living experiments whose current version is trained by this run."""
    query = select(ResourceRow).join(
        VersionRow,
        (VersionRow.namespace == ResourceRow.namespace)
        & (VersionRow.kind == ResourceRow.kind)
        & (VersionRow.name == ResourceRow.name)
        & (VersionRow.version == ResourceRow.version),
    )
    return list(session.scalars(query.where(VersionRow.run_id == run_id, ~ResourceRow.retired)))


def stop(pair: RunPair, cause: str, now: float, *, by: str | None = None) -> None:
    """Ask a run to stop; a queued one stops at once, an ended one stays as it is."""
    if RunState(pair.state.state).ended:
        return
    pair.run.stopped_by = by
    pair.run.wanted, pair.run.stop_cause = "stop", cause
    if pair.state.state == RunState.QUEUED:
        settle_stop(pair, now)


def settle_stop(pair: RunPair, now: float) -> None:
    """Record that a run which should stop has stopped, or send it on to where it belongs now."""
    if pair.run.stop_cause == MOVED:
        pair.run.tier = pair.run.spec.get("tier")
        resume(pair, f"moved to {whereabouts(pair)}", now)
    elif pair.run.stop_cause == "budget":
        message = budgets.exceeded(pair, now) or "reached its budget; raise it to continue"
        end(pair, RunState.FAILED, now, reason=FailureReason.BUDGET, message=message)
    else:
        words = {"user": "stopped by a user", "retired": "its experiment was retired"}
        words["replaced"] = "replaced by a newer version of its experiment"
        end(pair, RunState.STOPPED, now, message=words.get(pair.run.stop_cause or "", "stopped"))


def end(
    pair: RunPair, state: RunState, now: float, *, reason: FailureReason | None = None, message: str = ""
) -> None:
    """Record a run's final state."""
    _release(pair, now)
    pair.state.state, pair.state.reason, pair.state.message = state, reason, message


def resume(pair: RunPair, message: str, now: float) -> None:
    """Queue an ended run again, from its last resume state."""
    pair.run.wanted, pair.run.stop_cause = "run", None
    pair.state.restarts = pair.state.retries = 0
    requeue(pair, message, now)


def requeue(pair: RunPair, message: str, now: float) -> None:
    """Put a run back into the queue; a worker that still thinks it has it is fenced off."""
    _release(pair, now)
    pair.state.state, pair.state.reason, pair.state.message = RunState.QUEUED, None, message


def lose_worker(pair: RunPair, why: str, now: float) -> None:
    """The worker is gone: stop if that was wanted, else try again, else give up."""
    if pair.run.wanted == "stop":
        settle_stop(pair, now)
        return
    pair.state.restarts += 1
    allowed = retries.restarts(pair)
    if pair.state.restarts > allowed:
        message = f"{why}; gave up after {allowed} restarts without progress"
        end(pair, RunState.FAILED, now, reason=FailureReason.INFRA, message=message)
        return
    requeue(pair, f"{why}; continues from {place(pair)} (restart {pair.state.restarts} of {allowed})", now)


def place(pair: RunPair) -> str:
    """Where the next segment begins, in words."""
    resumed = pair.state.resume
    return f"iteration {resumed['iteration']}" if resumed else "the beginning"


def whereabouts(pair: RunPair) -> str:
    """Where a run belongs, in words."""
    spec = ExperimentSpec.model_validate(pair.run.spec)
    region = f" in {spec.region}" if spec.region else ""
    priority = f", priority {spec.priority}" if spec.priority else ""
    return f"{f'tier {spec.tier}' if spec.tier else 'the default tier'}{region}{priority}"


def _release(pair: RunPair, now: float) -> None:
    """Nobody holds the run any more: whoever did is fenced off, and its time is paid."""
    budgets.settle(pair, now)
    state = pair.state
    state.fence += 1
    state.worker_id = state.heartbeat = None
    state.updated = now


def checkpoints_of(session: Session, run_ids: Iterable[str]) -> dict[str, tuple[Checkpoint, ...]]:
    """Every export of these runs, by run, in order of step and member: one query."""
    query = select(CheckpointRow).where(CheckpointRow.run_id.in_(set(run_ids)))
    found: dict[str, list[Checkpoint]] = {}
    for row in session.scalars(query.order_by(CheckpointRow.step, CheckpointRow.member)):
        found.setdefault(row.run_id, []).append(checkpoint(row))
    return {run_id: tuple(rows) for run_id, rows in found.items()}


def checkpoint(row: CheckpointRow) -> Checkpoint:
    """The row as the wire writes it."""
    return Checkpoint(
        step=row.step,
        member=row.member,
        generation=row.generation,
        fitness=row.fitness,
        digest=row.digest,
        files=row.files,
        size_bytes=row.size_bytes,
        hyperparameters=row.hyperparameters,
    )


def statuses(session: Session, world: World, run_ids: Iterable[str]) -> dict[str, RunStatus]:
    """What people are told about these runs: two queries, however many there are."""
    wanted = set(run_ids)
    query = select(RunRow, RunStateRow).join(RunStateRow).where(RunRow.id.in_(wanted))
    checkpoints = checkpoints_of(session, wanted)
    return {
        run.id: describe(RunPair(run, state), checkpoints, world) for run, state in session.execute(query)
    }


def status(session: Session, world: World, run_id: str) -> RunStatus:
    """What people are told about one run."""
    return describe(get(session, run_id), checkpoints_of(session, [run_id]), world)


def describe(pair: RunPair, checkpoints: Mapping[str, tuple[Checkpoint, ...]], world: World) -> RunStatus:
    """Rows to `RunStatus`."""
    summary = Summary.model_validate(pair.state.summary)
    exports = checkpoints.get(pair.run.id, ())
    return RunStatus(
        run_id=pair.run.id,
        experiment=pair.run.experiment,
        fingerprint=pair.run.fingerprint,
        state=RunState(pair.state.state),
        reason=FailureReason(pair.state.reason) if pair.state.reason else None,
        message=pair.state.message,
        max_steps=pair.run.max_steps,
        step=summary.step,
        generation=summary.generation,
        segments=pair.state.segments,
        members=summary.members,
        best=best(exports),
        checkpoints=exports,
        lineage=summary.lineage,
        test_scores=summary.test_scores,
        warnings=summary.warnings,
        mlflow_url=_mlflow_url(pair.state, world),
        spent_s=round(pair.state.spent_s, 3),
        stopped_by=pair.run.stopped_by if pair.run.stop_cause == BY_A_PERSON else None,
        ended=pair.state.updated if RunState(pair.state.state).ended else None,
        model=ModelRef.model_validate(pair.state.model) if pair.state.model else None,
        trainer=summary.trainer,
        request_id=pair.run.request_id,
    )


def _mlflow_url(state: RunStateRow, world: World) -> str | None:
    if not state.tracking or not world.dashboard:
        return None
    return f"{world.dashboard}/#/experiments/{state.tracking['experiment']}/runs/{state.tracking['run']}"
