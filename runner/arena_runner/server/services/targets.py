"""What a deployment should serve now, or why nothing new: its rule, its experiment's run, its gate.

Looks only at the store. Whether and how the answer gets onto a model server is the controller's work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import Checkpoint, RunState
from arena_gitops.spec.wire import DeploymentSpec, ExperimentSpec, Gate
from arena_runner.server.choice import NoCheckpointError, best_by, choose
from arena_runner.server.services import runs
from arena_runner.server.services.deployments import Pin
from arena_runner.server.services.experiments import current_version
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import (
    CheckpointRow,
    DeploymentStateRow,
    EventRow,
    ResourceRow,
    RevisionRow,
    RunRow,
    VersionRow,
)
from arena_runner.server.summary import Summary

Place = tuple[str, int, int]
"""run, step, member"""


@dataclass(frozen=True, slots=True)
class Target:
    """What should serve."""

    run: RunRow
    version: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing new should serve, and why: `pending` goes on by itself, `held` needs somebody's decision."""

    state: Literal["pending", "held"]
    message: str


def find(
    session: Session, row: ResourceRow, state: DeploymentStateRow, serving: RevisionRow | None
) -> Target | Waiting:
    """The deployment's rule applied to what exists."""
    if state.hold:
        return _rolled_back(session, row, int(state.hold["revision"]))
    spec = DeploymentSpec.model_validate(row.spec)
    pin = Pin(**state.pin) if state.pin else None
    found = _pinned(session, pin) if pin else _standing(session, row, spec)
    if isinstance(found, Waiting) or _is(serving, found) or spec.gate is None:
        return found
    return _gate(session, found, spec.gate, serving) or found


def settled(session: Session, row: ResourceRow) -> bool:
    """Whether a deployment serves what it should, now: what `agent deploy --wait` waits for."""
    state = session.get(DeploymentStateRow, (row.namespace, row.name))
    if state is None or state.state != "serving":
        return False
    query = select(RevisionRow).where(RevisionRow.namespace == row.namespace)
    query = query.where(RevisionRow.deployment == row.name, RevisionRow.number == state.revision)
    serving = session.scalar(query)
    target = find(session, row, state, serving)
    return isinstance(target, Target) and _is(serving, target)


def _rolled_back(session: Session, row: ResourceRow, number: int) -> Target | Waiting:
    """The revision a rollback named; neither rule nor gate has a say while it holds."""
    query = select(RevisionRow).where(RevisionRow.namespace == row.namespace)
    revision = session.scalar(query.where(RevisionRow.deployment == row.name, RevisionRow.number == number))
    if revision is None:
        return Waiting("held", f"r{number} does not exist any more")
    run = runs.get(session, revision.run_id).run
    return Target(run, revision.version, _export(session, (run.id, revision.step, revision.member)))


def _pinned(session: Session, pin: Pin) -> Target | Waiting:
    if pin.missing:
        return Waiting("pending", pin.missing)
    run = runs.get(session, pin.run_id).run
    return Target(run, run.version, _export(session, pin.place))


def _export(session: Session, place: Place) -> Checkpoint:
    """One export that is known by its place: a run may have made thousands."""
    run_id, step, member = place
    query = select(CheckpointRow).where(CheckpointRow.run_id == run_id, CheckpointRow.step == step)
    row = session.scalar(query.where(CheckpointRow.member == member))
    if row is not None:
        return runs.checkpoint(row)
    return choose(f"step_{step}/m{member}", runs.checkpoints_of(session, [run_id]).get(run_id, ()))


def _standing(session: Session, row: ResourceRow, spec: DeploymentSpec) -> Target | Waiting:
    experiment = _experiment(session, row.namespace, spec.experiment)
    if experiment is None:
        return Waiting("pending", f"waits for experiment/{spec.experiment}, which does not exist")
    version = current_version(session, experiment)
    if version.run_id is None:
        return Waiting("pending", f"waits for experiment/{spec.experiment}, which has no run")
    pair = runs.get(session, version.run_id)
    waiting = _unfinished(pair, version, spec)
    if waiting is not None:
        return waiting
    try:
        exports = runs.checkpoints_of(session, [pair.run.id]).get(pair.run.id, ())
        return Target(pair.run, version.version, _chosen(session, pair.run.id, spec, exports))
    except NoCheckpointError as problem:
        return Waiting("held", str(problem))


def _chosen(session: Session, run_id: str, spec: DeploymentSpec, exports: Sequence[Checkpoint]) -> Checkpoint:
    """What the rule names; `best` by the figure it asks for. Raises NoCheckpointError."""
    if spec.best is None or spec.checkpoint != "best":
        return choose(spec.checkpoint, exports)
    figures, known = {}, {"fitness", "eval/reward"}
    for body in session.scalars(_evaluations(run_id)):
        values = _figures(body)
        known |= values.keys()
        if spec.best.metric in values:
            figures[body["step"], body["member"]] = float(values[spec.best.metric])
    found = best_by(exports, figures, spec.best.mode)
    if found is None:
        raise NoCheckpointError(
            f"no checkpoint has {spec.best.metric}, which best asks for; evaluations tell {', '.join(sorted(known))}"
        )
    return found


def _evaluations(run_id: str) -> Select[dict[str, Any]]:
    query = select(EventRow.body).where(EventRow.run_id == run_id, EventRow.type == "evaluation")
    return query.order_by(EventRow.position)


def _figures(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation tells, by the names that gates use."""
    return {"fitness": body["fitness"], "eval/reward": body["fitness"], **body["values"]}


def _unfinished(pair: RunPair, version: VersionRow, spec: DeploymentSpec) -> Waiting | None:
    state = RunState(pair.state.state)
    what = f"run {pair.run.id} of experiment/{spec.experiment} v{version.version}"
    if state == RunState.COMPLETED:
        return None
    if not state.ended:
        gate = f" and {spec.gate.metric} passes the gate" if spec.gate else ""
        return Waiting("pending", f"promotes {spec.checkpoint} when {what} ends{gate}")
    why = f" ({pair.state.reason})" if pair.state.reason else ""
    message = f": {pair.state.message}" if pair.state.message else ""
    return Waiting("held", f"{what} is {state}{why}{message}")


def _experiment(session: Session, namespace: str, name: str) -> ResourceRow | None:
    """In the deployment's own namespace, else the one of `main`, which a preview may read."""
    query = select(ResourceRow).where(ResourceRow.kind == "experiment", ResourceRow.name == name)
    found = {row.namespace: row for row in session.scalars(query.where(~ResourceRow.retired))}
    return found.get(namespace) or found.get("main")


def _is(serving: RevisionRow | None, target: Target) -> bool:
    return serving is not None and (serving.run_id, serving.digest) == (
        target.run.id,
        target.checkpoint.digest,
    )


def _gate(session: Session, target: Target, gate: Gate, serving: RevisionRow | None) -> Waiting | None:
    place = (target.run.id, target.checkpoint.step, target.checkpoint.member)
    value = _measure(session, place, gate.metric, target.checkpoint.fitness)
    if value is None:
        return Waiting("held", f"{target.checkpoint.label} has no {gate.metric}, which the gate asks for")
    what = f"{target.checkpoint.label}: {gate.metric} {value:.4g}"
    if gate.min is not None and value < gate.min:
        return Waiting("held", f"{what} is below the gate's {gate.min:g}")
    if gate.min_delta is None or serving is None or not _comparable(session, target.run, serving):
        return None
    place = (serving.run_id, serving.step, serving.member)
    before = _measure(session, place, gate.metric, None)
    if before is not None and value < before + gate.min_delta:
        message = f"{what} is not better by {gate.min_delta:g} than {before:.4g} of {serving.checkpoint}"
        return Waiting("held", f"{message}, which serves")
    return None


def _comparable(session: Session, run: RunRow, serving: RevisionRow) -> bool:
    """Only a newer run, judged by the same reward on the same rows, must be better; going back needs no gain."""
    other = session.get_one(RunRow, serving.run_id)
    if run.created <= other.created:
        return False
    mine, theirs = (ExperimentSpec.model_validate(r.spec).inputs for r in (run, other))
    return (mine.reward, mine.dataset, mine.environment) == (
        theirs.reward,
        theirs.dataset,
        theirs.environment,
    )


def _measure(session: Session, place: Place, metric: str, fitness: float | None) -> float | None:
    """A checkpoint's figure: of its evaluation, or of the test split if it was scored there."""
    run_id, step, member = place
    for body in session.scalars(_evaluations(run_id)):
        if (body["step"], body["member"]) == (step, member) and metric in (values := _figures(body)):
            return float(values[metric])
    if metric in {"fitness", "eval/reward"}:
        return fitness
    return _tested(session, place, metric)


def _tested(session: Session, place: Place, metric: str) -> float | None:
    run_id, step, member = place
    summary = Summary.model_validate(runs.get(session, run_id).state.summary)
    for scores in summary.test_scores:
        if (scores.label, scores.step, scores.member) == ("best", step, member):
            return scores.mean.get(metric.removeprefix("test/"))
    return None
