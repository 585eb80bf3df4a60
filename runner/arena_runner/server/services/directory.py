"""Experiments and deployments by the names commands use: looked up, listed, stopped, raised, deployed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.job import RunState, RunStatus
from arena_gitops.spec.wire import DeploymentSpec, DeploymentStatus, ExperimentSpec, ResourceDocument
from arena_runner.server.choice import STEP, NoCheckpointError, choose
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import imperative, runs, sessions
from arena_runner.server.services.documents import document
from arena_runner.server.services.experiments import current_version
from arena_runner.server.services.jobs import effective_max_steps
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World


@dataclass(frozen=True, slots=True)
class Listed:
    """A resource with the name people gave it."""

    name: str
    document: ResourceDocument

    @property
    def spec(self) -> dict[str, Any]:
        """The stored spec."""
        return dict(self.document.spec)


def listed(session: Session, world: World, kind: str) -> list[Listed]:
    """Every living resource of a kind."""
    rows = imperative.living(session, kind)
    return [Listed(imperative.shown(row), document(session, world, row)) for row in rows]


def run_of(session: Session, name: str) -> RunPair:
    """The run of an experiment's current version; 404 when there is no such experiment."""
    row = imperative.get(session, "experiment", name)
    run_id = current_version(session, row).run_id
    if run_id is None:
        raise RefusedError(409, "no-run", f"experiment {name!r} has no run")
    return runs.get(session, run_id)


def stop(world: World, name: str, by: str) -> RunStatus:
    """Ask an experiment's run to stop."""
    with world.store.write() as session:
        pair = run_of(session, name)
        runs.stop(pair, "user", world.clock(), by=by)
        session.flush()
        status = runs.status(session, world, pair.run.id)
    world.bell.ring()
    return status


def raise_steps(world: World, name: str, max_steps: int) -> ResourceDocument:
    """Let a run go on to `max_steps`; it resumes from its last state."""
    with world.store.read() as session:
        row = imperative.get(session, "experiment", name)
        imperative.check_ours(row)
        pair = run_of(session, name)
    _check_steps(world, pair, name, max_steps)
    spec = ExperimentSpec.model_validate(row.spec).model_dump(mode="json")
    training = {**spec["manifest"]["training"], "max_steps": max(max_steps, pair.run.max_steps)}
    spec["manifest"] = {**spec["manifest"], "training": training}
    answer = imperative.put(
        world,
        "experiment",
        imperative.shown(row),
        spec,
        kept=Fingerprint.model_validate(row.fingerprint),
        rerun=row.rerun,
    )
    with world.store.write() as session:
        again = run_of(session, name)
        if RunState(again.state.state) in runs.UNFINISHED:  # stopped early, and no further goal was set
            runs.resume(again, "resumed by a user", world.clock())
    world.bell.ring()
    return answer


def _check_steps(world: World, pair: RunPair, name: str, max_steps: int) -> None:
    state = RunState(pair.state.state)
    limit, done = world.settings.limits.max_steps, pair.state.job_max_steps or 0
    if max_steps < 1:
        raise RefusedError(422, "bad-request", f"max_steps is a positive number, not {max_steps}")
    if state not in runs.UNFINISHED and max_steps <= effective_max_steps(pair.run, world):
        message = f"experiment {name!r} is {state} with max_steps {pair.run.max_steps}; give more than that"
        raise RefusedError(409, "nothing-to-do", message)
    if state == RunState.COMPLETED and limit is not None and limit <= done:
        message = f"experiment {name!r} has done the {limit} steps that this server allows a run"
        raise RefusedError(409, "nothing-to-do", message)


def deploy(world: World, name: str, checkpoint: str | None, scope: str | None = None) -> ResourceDocument:
    """Serve an experiment under its own name: `best`, and sessions per person, unless something else is said."""
    rule = checkpoint or "best"
    with world.store.read() as session:
        row = imperative.get(session, "experiment", name)
        _check_rule(session, name, rule)
        kept = _scope_label(imperative.find(session, "deployment", name), scope)
    labels = {**imperative.labels(imperative.shown(row)), **kept}
    spec = DeploymentSpec(labels=labels, experiment=row.name, checkpoint=rule)
    parent = Fingerprint.model_validate(row.fingerprint)
    return imperative.put(
        world, "deployment", imperative.shown(row), spec.model_dump(mode="json"), parents=[parent]
    )


def deployment(session: Session, world: World, name: str) -> tuple[ResourceRow, DeploymentStatus | None]:
    """A deployment and what it serves; 404 when there is none."""
    row = imperative.get(session, "deployment", name)
    return row, document(session, world, row).deployment


def _scope_label(row: ResourceRow | None, wanted: str | None) -> dict[str, str]:
    """The memory scope as a label; it is chosen once, because what was said cannot change hands."""
    if wanted not in {None, sessions.PERSONAL, sessions.SHARED}:
        message = f"memoryScope is {sessions.PERSONAL} or {sessions.SHARED}, not {wanted!r}"
        raise RefusedError(422, "bad-request", message)
    scope = sessions.scope_of(row) if row is not None else wanted or sessions.PERSONAL
    if wanted not in {None, scope}:
        message = f"the sessions of this deployment belong to each {scope}; that cannot be changed afterwards"
        raise RefusedError(409, "scope-fixed", message)
    return {sessions.SCOPE: scope} if scope != sessions.PERSONAL else {}


def _check_rule(session: Session, name: str, rule: str) -> None:
    """A rule that names nothing is said now, if what there is will not change any more."""
    if rule != "best" and not STEP.match(rule) and not rule.startswith("@"):
        message = f"checkpoint {rule!r} is none of best, step_N, step_N/mK and @alias"
        raise RefusedError(422, "bad-checkpoint", message)
    pair = run_of(session, name)
    if rule.startswith("@") or not RunState(pair.state.state).ended:
        return
    try:
        choose(rule, runs.checkpoints_of(session, [pair.run.id]).get(pair.run.id, ()))
    except NoCheckpointError as problem:
        raise RefusedError(404, "no-checkpoint", f"experiment {name!r}: {problem}") from problem
