"""Events into MLflow. The only writer; nothing here can slow a run or lose what a worker reported.

The `events` table is the outbox: rows are written to MLflow in order and then marked. A crash between the two
repeats identical points, which MLflow stores once; a resumed segment's repeats are recognised by `series`.
MLflow being down means waiting and trying again, for ever.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import or_, select, union

from arena_gitops.spec.job import (
    JOB_EVENT,
    CheckpointSaved,
    Evolution,
    Filmed,
    Finished,
    JobEvent,
    JobInputs,
    RunState,
    Started,
)
from arena_runner import logs
from arena_runner.checks.report import markdown
from arena_runner.server import curves, kept_checks
from arena_runner.server.controllers.loop import Controller
from arena_runner.server.facts import member_facts, run_facts, run_params
from arena_runner.server.ledger import Ledger, is_permanent
from arena_runner.server.points import WHOLE_RUN, fresh, points
from arena_runner.server.registrations import Registrar
from arena_runner.server.services import runs
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import CheckpointRow, EventRow, RunStateRow, SeriesRow
from arena_runner.server.summary import Summary
from arena_runner.server.world import World

AT_ONCE = 500
REGISTRY_EVERY_S = 10.0
"""How old the mirror of the aliases may become when nothing happens here."""
PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0)

STATUS = {
    RunState.QUEUED: "SCHEDULED",
    RunState.VALIDATING: "RUNNING",
    RunState.RUNNING: "RUNNING",
    RunState.COMPLETED: "FINISHED",
    RunState.STOPPED: "KILLED",
    RunState.FAILED: "FAILED",
}

log = logging.getLogger(__name__)


class Tracker(Controller):
    """One thread between the store and MLflow."""

    interval_s = 2.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ledger: Ledger | None = None
        self._failures = 0
        self._not_before = self._registry_due = 0.0

    def reconcile(self) -> None:
        """Write what MLflow does not have yet; back off while it is down."""
        now = self.world.clock()
        if not self.world.links.mlflow_ready.is_set() or now < self._not_before:
            return
        news = self._with_news()
        if news or (now >= self._registry_due and self._has_exports()):
            self._write_all(news)

    def _write_all(self, news: list[str]) -> None:
        ledger = self._open()
        from mlflow.exceptions import MlflowException

        try:
            for run_id in news:
                with logs.about(run_id=run_id):
                    self._track(ledger, run_id)
            Registrar(self.world, ledger).reconcile()
            self._registry_due = self.world.clock() + REGISTRY_EVERY_S
            self._failures = 0
        except MlflowException as problem:
            pause = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._failures += 1
            self._not_before = self.world.clock() + pause
            log.warning("MLflow did not take it; again in %g s: %s", pause, logs.discreet(str(problem))[:500])

    def _has_exports(self) -> bool:
        """Whether anything is, or should be, registered: a predecessor may have died between the two."""
        with self.world.store.read() as session:
            return session.scalar(select(CheckpointRow.id).limit(1)) is not None

    def _open(self) -> Ledger:
        uri = self.world.links.mlflow or ""
        if self._ledger is None or self._ledger.uri != uri:
            self._ledger = Ledger(uri)
        return self._ledger

    def _with_news(self) -> list[str]:
        untracked = select(EventRow.run_id).where(~EventRow.tracked).distinct()
        told = RunStateRow.tracked_state
        moved = select(RunStateRow.run_id).where(or_(told.is_(None), told != RunStateRow.state))
        with self.world.store.read() as session:
            return [run_id for (run_id,) in session.execute(union(untracked, moved))]

    def _track(self, ledger: Ledger, run_id: str) -> None:
        with self.world.store.read() as session:
            pair = runs.get(session, run_id)
        ids = self._ensure_runs(ledger, pair)
        while rows := self._untracked(run_id):
            self._write(ledger, pair, ids, rows)
        self._tell_state(ledger, pair, ids)

    def _untracked(self, run_id: str) -> list[EventRow]:
        query = select(EventRow).where(EventRow.run_id == run_id, ~EventRow.tracked)
        with self.world.store.read() as session:
            return list(session.scalars(query.order_by(EventRow.position).limit(AT_ONCE)))

    def _write(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any], rows: Sequence[EventRow]) -> None:
        """One batch; if MLflow refuses a value in it for good, each event alone, so that only that one is left out."""
        from mlflow.exceptions import MlflowException

        known = self._series(pair.run.id)
        try:
            self._send(ledger, pair, ids, rows, known)
        except MlflowException as problem:
            if not is_permanent(problem):
                raise
            if len(rows) > 1:
                for row in rows:
                    self._write(ledger, pair, ids, [row])
                return
            log.exception("run %s: MLflow refuses event %d for good", pair.run.id, rows[0].position)
        self._mark(pair.run.id, rows, known)

    def _send(
        self,
        ledger: Ledger,
        pair: RunPair,
        ids: dict[str, Any],
        rows: Sequence[EventRow],
        known: dict[tuple[int, str], int],
    ) -> None:
        events = [JOB_EVENT.validate_python(row.body) for row in rows]
        new = fresh((p for event in events for p in points(event)), known)
        for member in sorted({p.member for p in new}):
            run = self._mlflow_run(ledger, pair, ids, member)
            ledger.log_points(run, [p for p in new if p.member == member])
        for event in events:
            self._send_rest(ledger, pair, ids, event)

    def _send_rest(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any], event: JobEvent) -> None:
        """What is no metric: tags, artifacts."""
        match event:
            case Started():
                for member in range(event.members):
                    self._mlflow_run(ledger, pair, ids, member)
                ledger.tag(ids["run"], _machine(event))
            case CheckpointSaved():
                saved = event.checkpoint
                files = {name: self.world.blobs.existing(digest) for name, digest in saved.files.items()}
                run = self._mlflow_run(ledger, pair, ids, saved.member)
                ledger.upload(run, files, f"checkpoints/step_{saved.step}")
            case Evolution():
                for record in event.records:
                    run = self._mlflow_run(ledger, pair, ids, record.member)
                    ledger.tag(run, {"arena.lineage": f"g{record.generation}: {_told(record)}"})
                self._write_lineage(ledger, pair, ids)
            case Filmed():
                files = {name: self.world.blobs.existing(digest) for name, digest in event.files.items()}
                ledger.upload(str(ids["run"]), files, "replay")
            case Finished():
                self._write_pictures(ledger, pair, ids)
            case _:
                pass

    def _ensure_runs(self, ledger: Ledger, pair: RunPair) -> dict[str, Any]:
        """The run's MLflow ids; experiment and parent run are made at the first call."""
        if pair.state.tracking is not None:
            return dict(pair.state.tracking)
        experiment = ledger.experiment(pair.run.project or "default")
        name, tags, key = run_facts(pair.run)
        ids: dict[str, Any] = {"experiment": experiment, "members": {}}
        ids["run"] = ledger.open_run(experiment, name, tags, key)
        ledger.log_params(ids["run"], run_params(pair.run))
        ledger.upload_text(ids["run"], json.dumps(pair.run.spec, indent=2), "experiment.json")
        if (found := kept_checks.find(self.world, JobInputs.model_validate(pair.run.inputs))) is not None:
            ledger.upload_text(ids["run"], found.model_dump_json(indent=2), "checks.json")
            ledger.upload_text(ids["run"], markdown(found), "checks.md")
        self._remember(pair.run.id, ids)
        return ids

    def _mlflow_run(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any], member: int) -> str:
        if member == WHOLE_RUN:
            return str(ids["run"])
        if str(member) not in ids["members"]:
            name, tags, key = member_facts(pair.run, ids["run"], member)
            ids["members"][str(member)] = ledger.open_run(ids["experiment"], name, tags, key)
            self._remember(pair.run.id, ids)
        return str(ids["members"][str(member)])

    def _remember(self, run_id: str, ids: dict[str, Any]) -> None:
        with self.world.store.write() as session:
            runs.get(session, run_id).state.tracking = json.loads(json.dumps(ids))

    def _series(self, run_id: str) -> dict[tuple[int, str], int]:
        with self.world.store.read() as session:
            return {(row.member, row.key): row.step for row in session.scalars(_series(run_id))}

    def _mark(self, run_id: str, rows: Sequence[EventRow], known: dict[tuple[int, str], int]) -> None:
        with self.world.store.write() as session:
            stored = {(s.member, s.key): s for s in session.scalars(_series(run_id))}
            for (member, key), step in known.items():
                if (member, key) in stored:
                    stored[member, key].step = step
                else:
                    session.add(SeriesRow(run_id=run_id, member=member, key=key, step=step))
            for row in rows:
                session.get_one(EventRow, row.id).tracked = True

    def _tell_state(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any]) -> None:
        with self.world.store.read() as session:
            state = runs.get(session, pair.run.id).state
        if state.tracked_state == state.state:
            return
        ledger.tag(ids["run"], {"arena.state": state.state, "arena.message": state.message or "-"})
        for run in (ids["run"], *ids["members"].values()):
            ledger.set_status(run, STATUS[RunState(state.state)])
        with self.world.store.write() as session:
            runs.get(session, pair.run.id).state.tracked_state = state.state

    def _write_lineage(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any]) -> None:
        with self.world.store.read() as session:
            summary = Summary.model_validate(runs.get(session, pair.run.id).state.summary)
        records = [record.model_dump(mode="json") for record in summary.lineage]
        ledger.upload_text(ids["run"], json.dumps(records, indent=1), "lineage.json")

    def _write_pictures(self, ledger: Ledger, pair: RunPair, ids: dict[str, Any]) -> None:
        with self.world.store.read() as session:
            query = select(EventRow.body).where(EventRow.run_id == pair.run.id).order_by(EventRow.position)
            kinds = ("progress", "evaluation", "sample")
            bodies = list(session.scalars(query.where(EventRow.type.in_(kinds))))
            summary = Summary.model_validate(runs.get(session, pair.run.id).state.summary)
        samples = [json.dumps(body) for body in bodies if body["type"] == "sample"]
        if samples:
            ledger.upload_text(ids["run"], "\n".join(samples), "samples.jsonl")
        if not curves.can_draw():
            return
        reward, fitness = curves.collect(JOB_EVENT.validate_python(body) for body in bodies)
        with tempfile.TemporaryDirectory(prefix="arena-curves-") as folder:
            picture = Path(folder) / "population.png"
            curves.draw(
                picture, f"{pair.run.experiment} v{pair.run.version}", reward, fitness, summary.lineage
            )
            ledger.upload_file(ids["run"], picture)


def _series(run_id: str) -> Any:
    return select(SeriesRow).where(SeriesRow.run_id == run_id)


def _machine(event: Started) -> dict[str, str]:
    tags = {"arena.device": event.device, "arena.dtype": event.dtype, "arena.threads": str(event.threads)}
    tags |= {f"arena.versions.{name}": version for name, version in event.versions.items()}
    if event.model is not None:
        tags["arena.model"] = f"{event.model.id}@{event.model.revision or 'floating'}"
    return tags


def _told(record: Any) -> str:
    origin = "kept its place" if record.parent == record.member else f"copy of m{record.parent}"
    if record.mutation is None:
        return origin
    if record.old is None or record.new is None:
        return f"{origin}, {record.mutation}"
    return f"{origin}, {record.mutation} {record.old:g} -> {record.new:g}"
