"""What a purge deletes, beyond retiring: results and files that nothing else uses any more.

The rows that count stay: a run with its time and credits (the month's spending is made of them), the newest version and
revision without their content, so that numbers go on and never name two things. MLflow's own records are left alone.
A run that still has a worker is deleted when it has ended; the mark is in its row, so that a restart changes nothing.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from arena_gitops.spec.digest import digests_in
from arena_gitops.spec.job import RunState
from arena_runner.server.services import runs
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.environments import EnvironmentVersionRow
from arena_runner.server.store.imports import ImportRow
from arena_runner.server.store.tables import (
    ChatSessionRow,
    CheckpointRow,
    EventRow,
    RegistrationRow,
    ResourceRow,
    RevisionRow,
    RunRow,
    RunStateRow,
    SeriesRow,
    VersionRow,
)
from arena_runner.server.summary import Summary
from arena_runner.server.world import World

PURGED = "purged"
"""Cause of a stop after which nothing is kept but what the run has cost."""
GONE = "its data was purged"

log = logging.getLogger(__name__)


def purge(session: Session, world: World, row: ResourceRow) -> frozenset[str]:
    """Take the content out of a retired resource; gives the files that it named. `sweep` deletes them."""
    named = digests_in([row.spec, *_versions(session, row)])
    ours = _forget_versions(session, row)
    if row.kind == "deployment":
        named |= _forget_revisions(session, row)
    if row.kind == "dataset":
        named |= _forget_import(session, row)
    row.spec = {}
    session.flush()
    for run_id in ours:
        if not _in_use(session, run_id):
            pair = runs.get(session, run_id)
            runs.stop(pair, PURGED, world.clock())
            pair.run.wanted, pair.run.stop_cause = "stop", PURGED
    session.flush()
    return named


def collect(world: World) -> None:
    """Delete the results of purged runs that have ended; called again and again, it mostly finds nothing."""
    with world.store.read() as session:
        ended = [pair.run.id for pair in _to_collect(session)]
    for run_id in ended:
        with world.store.write() as session:
            named = _forget_run(session, runs.get(session, run_id))
        shutil.rmtree(world.home.run(run_id), ignore_errors=True)
        sweep(world, named)
        log.info("run %s was purged", run_id)


def sweep(world: World, digests: Iterable[str]) -> None:
    """Delete those of these files that nothing names; nobody writes meanwhile, so nobody comes to name one."""
    candidates = frozenset(digest for digest in digests if world.blobs.has(digest))
    if not candidates:
        return
    with world.store.write() as session:
        left = candidates
        for value in _naming(session):
            left -= digests_in(value)
            if not left:
                return
        for digest in left:
            world.blobs.path(digest).unlink(missing_ok=True)


def _versions(session: Session, row: ResourceRow) -> list[Any]:
    return [version.spec for version in _history(session, row)]


def _history(session: Session, row: ResourceRow) -> list[VersionRow]:
    query = select(VersionRow).where(VersionRow.namespace == row.namespace, VersionRow.kind == row.kind)
    return list(session.scalars(query.where(VersionRow.name == row.name).order_by(VersionRow.version)))


def _forget_versions(session: Session, row: ResourceRow) -> frozenset[str]:
    """Every version but the newest, and that one's content; gives the runs they had."""
    history = _history(session, row)
    ours = frozenset(version.run_id for version in history if version.run_id is not None)
    for version in history[:-1]:
        session.delete(version)
    for version in history[-1:]:
        version.identity, version.run_id, version.spec = f"{PURGED}:{version.version}", None, {}
    return ours


def _forget_revisions(session: Session, row: ResourceRow) -> frozenset[str]:
    query = select(RevisionRow).where(
        RevisionRow.namespace == row.namespace, RevisionRow.deployment == row.name
    )
    history = list(session.scalars(query.order_by(RevisionRow.number)))
    named = digests_in([[revision.digest, revision.files] for revision in history])
    for revision in history[:-1]:
        session.delete(revision)
    for revision in history[-1:]:
        revision.files, revision.digest, revision.state, revision.message = {}, "", "failed", GONE
    chats = delete(ChatSessionRow).where(ChatSessionRow.namespace == row.namespace)
    session.execute(chats.where(ChatSessionRow.deployment == row.name))
    return named


def _forget_import(session: Session, row: ResourceRow) -> frozenset[str]:
    found = session.get(ImportRow, (row.namespace, row.name))
    if found is None:
        return frozenset()
    session.delete(found)
    return digests_in([found.digest])


def _in_use(session: Session, run_id: str) -> bool:
    """Whether another experiment has it as a result, or a deployment can still serve it."""
    version = session.scalar(select(VersionRow.id).where(VersionRow.run_id == run_id).limit(1))
    served = select(RevisionRow.id).where(RevisionRow.run_id == run_id, RevisionRow.digest != "")
    return version is not None or session.scalar(served.limit(1)) is not None


def _to_collect(session: Session) -> Iterator[RunPair]:
    query = select(RunRow, RunStateRow).join(RunStateRow).where(RunRow.stop_cause == PURGED)
    for run, state in session.execute(query):
        if RunState(state.state).ended and state.worker_pid is None and state.message != GONE:
            yield RunPair(run, state)


def _forget_run(session: Session, pair: RunPair) -> frozenset[str]:
    """Everything of a run but that it was, and what it cost."""
    run, state = pair.run, pair.state
    exports = list(session.scalars(select(CheckpointRow).where(CheckpointRow.run_id == run.id)))
    named = digests_in([run.spec, run.inputs, state.resume, state.resume_before])
    named |= digests_in([[export.digest, export.files] for export in exports])
    for table in (EventRow, CheckpointRow, SeriesRow, RegistrationRow):
        session.execute(delete(table).where(table.run_id == run.id))
    run.spec, run.inputs = {}, {}
    state.resume = state.resume_before = None
    state.summary = Summary().model_dump(mode="json")
    state.message = GONE
    return named


def _naming(session: Session) -> Iterator[Any]:
    """Every value of the store that can name a file."""
    columns = (
        (ResourceRow.spec,),
        (VersionRow.spec,),
        (RunRow.spec, RunRow.inputs),
        (RunStateRow.resume, RunStateRow.resume_before),
        (CheckpointRow.digest, CheckpointRow.files),
        (RevisionRow.digest, RevisionRow.files),
        (ImportRow.digest,),
        (EnvironmentVersionRow.spec,),
    )
    for parts in columns:
        for found in session.execute(select(*parts).execution_options(yield_per=500)):
            yield [*found]
