"""Checkpoints as versions of registered models, and the two aliases the platform keeps.

Level-triggered: what should be registered is computed from the store, what is missing is made. Registered are
the fittest member at every evaluation and every member at the end, under each experiment that uses the run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import Checkpoint, RunState
from arena_runner.server.choice import best, fittest_at
from arena_runner.server.ledger import Ledger, NewVersion
from arena_runner.server.registry import BEST, SERVING, model_name
from arena_runner.server.services import audit, runs
from arena_runner.server.services.deployments import serving_revisions
from arena_runner.server.store.tables import (
    AliasRow,
    CheckpointRow,
    EventRow,
    RegistrationRow,
    ResourceRow,
    RunRow,
    RunStateRow,
    VersionRow,
)
from arena_runner.server.world import World

MOVES_ON = ("progress", "evolution", "resume_state", "finished")
"""Events after which no more exports of an earlier step arrive."""

Place = tuple[str, str, int, int]
"""model, run, step, member"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Trained:
    """A version of an experiment and the run that trained it."""

    version: VersionRow
    run: RunRow
    state: RunStateRow
    exports: tuple[Checkpoint, ...]

    @property
    def model(self) -> str:
        return model_name(self.version.namespace, self.version.name)

    def place(self, checkpoint: Checkpoint) -> Place:
        return (self.model, self.run.id, checkpoint.step, checkpoint.member)


class Registrar:
    """One pass over everything that has checkpoints."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world, self._ledger = world, ledger

    def reconcile(self) -> None:
        """Register what is missing, then look at the aliases and put ours right."""
        with self._world.store.read() as session:
            trained = _trained(session)
            known = _registered(session)
            closed = _closed(session, trained)
        for item in trained:
            for checkpoint in eligible(item, closed.get(item.run.id, frozenset())):
                if item.place(checkpoint) not in known:
                    known[item.place(checkpoint)] = self._register(item, checkpoint)
        if known:
            self._keep_aliases(trained, known)

    def _register(self, item: _Trained, checkpoint: Checkpoint) -> str:
        key = {"arena.run": item.run.id, "step": str(checkpoint.step), "member": str(checkpoint.member)}
        fitness = "unknown" if checkpoint.fitness is None else f"{checkpoint.fitness:.6g}"
        tags = {
            **key,
            "generation": str(checkpoint.generation),
            "fitness": fitness,
            "run_version": str(item.version.version),
            "checkpoint": checkpoint.label,
            "digest": checkpoint.digest,
        }
        mlflow_run = (item.state.tracking or {})["members"][str(checkpoint.member)]
        folder = f"checkpoints/step_{checkpoint.step}"
        description = f"{checkpoint.label} of {item.version.name} v{item.version.version}, fitness {fitness}"
        version = self._ledger.register(NewVersion(item.model, mlflow_run, folder, tags, description), key)
        model, run_id, step, member = item.place(checkpoint)
        row = RegistrationRow(model=model, run_id=run_id, step=step, member=member, version=version)
        with self._world.store.write() as session:
            session.merge(row)
        return version

    def _keep_aliases(self, trained: list[_Trained], known: dict[Place, str]) -> None:
        actual = self._ledger.aliases()
        for (model, alias), version in self._wanted(trained, known, actual).items():
            if actual.get((model, alias)) != version:
                self._ledger.set_alias(model, alias, version)
                actual[model, alias] = version
        self._mirror(actual)

    def _wanted(
        self, trained: list[_Trained], known: dict[Place, str], actual: dict[tuple[str, str], str]
    ) -> dict[tuple[str, str], str]:
        wanted: dict[tuple[str, str], str] = {}
        with self._world.store.read() as session:
            current = _current(session)
            serving = serving_revisions(session)
        for item in trained:
            fittest = best(item.exports)
            key = (item.version.namespace, item.version.name, item.version.version)
            if fittest is None or key not in current or item.place(fittest) not in known:
                continue
            # While a new version trains, `best` stays with the finished one people know.
            if item.state.state == RunState.COMPLETED or (item.model, BEST) not in actual:
                wanted[item.model, BEST] = known[item.place(fittest)]
        for revision, experiment in serving:
            model = model_name(revision.namespace, experiment)
            place = (model, revision.run_id, revision.step, revision.member)
            if place in known:
                wanted.setdefault((model, SERVING), known[place])
        return wanted

    def _mirror(self, actual: dict[tuple[str, str], str]) -> None:
        now = self._world.clock()
        with self._world.store.write() as session:
            before = {(row.model, row.alias): row.version for row in session.scalars(select(AliasRow))}
            audit.compare(session, before, actual, now)
            session.execute(delete(AliasRow))
            rows = (AliasRow(model=m, alias=a, version=v, updated=now) for (m, a), v in actual.items())
            session.add_all(rows)


def eligible(item: _Trained, closed: frozenset[int]) -> list[Checkpoint]:
    """The exports to be registered now: of each finished step the fittest, of the last one all."""
    completed = item.state.state == RunState.COMPLETED
    last = max((c.step for c in item.exports), default=0)
    chosen: list[Checkpoint] = []
    for step in sorted({c.step for c in item.exports} & closed):
        here = [c for c in item.exports if c.step == step]
        fittest = fittest_at(here, step)
        chosen += here if completed and step == last else [fittest] if fittest else []
    return chosen


def _trained(session: Session) -> list[_Trained]:
    query = select(VersionRow, RunRow, RunStateRow).join(RunRow, RunRow.id == VersionRow.run_id)
    query = query.join(RunStateRow, RunStateRow.run_id == RunRow.id).where(RunStateRow.tracking.is_not(None))
    rows = list(session.execute(query.order_by(VersionRow.created)))
    exports = runs.checkpoints_of(session, [run.id for _, run, _ in rows])
    return [_Trained(version, run, state, exports.get(run.id, ())) for version, run, state in rows]


def _registered(session: Session) -> dict[Place, str]:
    rows = session.scalars(select(RegistrationRow))
    return {(row.model, row.run_id, row.step, row.member): row.version for row in rows}


def _current(session: Session) -> frozenset[tuple[str, str, int]]:
    query = select(ResourceRow).where(ResourceRow.kind == "experiment", ~ResourceRow.retired)
    return frozenset((row.namespace, row.name, row.version) for row in session.scalars(query))


def _closed(session: Session, items: list[_Trained]) -> dict[str, frozenset[int]]:
    """By run, the steps of which no more exports will come and all have been logged."""
    ids = {item.run.id for item in items}
    position, run_id = func.max(EventRow.position), EventRow.run_id
    tracked = select(run_id, position).where(run_id.in_(ids), EventRow.tracked).group_by(run_id)
    moved = tracked.where(EventRow.type.in_(MOVES_ON))
    logged = dict(session.execute(tracked).tuples().all())
    beyond = dict(session.execute(moved).tuples().all())
    for item in items:
        if RunState(item.state.state).ended:
            beyond[item.run.id] = logged.get(item.run.id, 0) + 1
    steps = select(CheckpointRow.run_id, CheckpointRow.step, func.max(CheckpointRow.position))
    steps = steps.where(CheckpointRow.run_id.in_(ids)).group_by(CheckpointRow.run_id, CheckpointRow.step)
    closed: dict[str, set[int]] = {}
    for run, step, last in session.execute(steps):
        if last <= logged.get(run, 0) and last < beyond.get(run, 0):
            closed.setdefault(run, set()).add(step)
    return {run: frozenset(found) for run, found in closed.items()}
