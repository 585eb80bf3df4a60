"""Runs that are held, and a person's decision to let one go on: nothing is spent on them without one."""

from __future__ import annotations

from sqlalchemy.orm import Session

from arena_gitops.spec.job import RunState
from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner, ResourceDocument
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.services import budgets, experiments, runs
from arena_runner.server.services.documents import document
from arena_runner.server.services.resources import check_owner, find
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World


def resume(world: World, name: str, owner: Owner, by: str) -> ResourceDocument:
    """Queue the stopped or failed run of an experiment again; a stop that has not taken effect yet is taken back."""
    with world.store.write() as session:
        row = _living(session, name, owner)
        pair = runs.get(session, str(experiments.current_version(session, row).run_id))
        if experiments.of_others(session, row, pair):
            message = f"run {pair.run.id} was begun by another stack or namespace, whose decision it is"
            raise RefusedError(409, "run-of-others", message)
        _let_go_on(pair, by, world.clock())
        session.flush()
        answer = document(session, world, row)
    world.bell.ring()
    return answer


def _let_go_on(pair: RunPair, by: str, now: float) -> None:
    state = RunState(pair.state.state)
    if not state.ended and pair.run.stop_cause == runs.BY_A_PERSON:
        pair.run.wanted, pair.run.stop_cause = "run", None
        return
    if state not in runs.UNFINISHED:
        message = f"run {pair.run.id} is {state.value}: there is no hold to end"
        raise RefusedError(409, "not-held", message)
    if state is RunState.FAILED and pair.state.resume is None:
        message = f"run {pair.run.id} failed before its first saved state; raise rerun, or apply with --rerun"
        raise RefusedError(409, "no-checkpoint", message)
    if (spent := budgets.exceeded(pair, now)) is not None:
        raise RefusedError(409, "budget", f"run {pair.run.id} {spent}")
    runs.resume(pair, f"resumed by {by}", now)


def _living(session: Session, name: str, owner: Owner) -> ResourceRow:
    row = find(session, Address("experiment", name), owner.namespace)
    if row is None or row.retired:
        raise not_found(f"experiment/{name}")
    check_owner(row, owner)
    return row
