"""Which run trains an experiment's current version: an equal one is shared, a raised budget resumes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.algorithms import ALGORITHMS
from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.job import JobInputs, RunState
from arena_gitops.spec.resource import MAIN
from arena_gitops.spec.wire import ExperimentSpec
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import budgets, runs, secrets
from arena_runner.server.services.runs import RunPair
from arena_runner.server.store.tables import ResourceRow, RunRow, VersionRow
from arena_runner.server.summary import Summary
from arena_runner.server.world import VERSION, World

MOST_STEPS = 2**63
"""What a database can count."""


def check(world: World, spec: ExperimentSpec) -> None:
    """Refuse what could never be trained here, before anything is stored."""
    algorithm = spec.manifest.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    if name not in ALGORITHMS:
        known = ", ".join(sorted(ALGORITHMS))
        raise RefusedError(422, "unsupported-algorithm", f"this server trains {known}; not {name}")
    if not 0 < runs.max_steps_of(spec) < MOST_STEPS:
        message = f"manifest.training.max_steps must be a positive number below {MOST_STEPS}"
        raise RefusedError(422, "bad-spec", message)
    missing = world.blobs.missing(_files(spec.inputs))
    if missing:
        message = f"upload these blobs first: {', '.join(missing)}"
        raise RefusedError(422, "blob-missing", message, {"missing": ",".join(missing)})


def settle(session: Session, world: World, row: ResourceRow, spec: ExperimentSpec, *, returned: bool) -> None:
    """Give the current version its run, and leave the runs of others that nobody needs any more.

    A version that returns is a decision to have it trained: it takes an equal run that others have made since,
    or its own goes on, whoever had stopped it.
    """
    session.flush()
    version = current_version(session, row)
    if version.run_id is None or (returned and _unfinished(session, version.run_id)):
        version.run_id = _run_for(session, world, row, spec, version.run_id).run.id
        session.flush()
    pair = runs.get(session, version.run_id)
    if of_others(session, row, pair):
        if _asks_for_more(pair, spec):
            version.run_id = _new_run(session, world, row, spec).run.id
        _leave_replaced(session, world, row)
        return
    if returned and RunState(pair.state.state) in runs.UNFINISHED:
        runs.resume(pair, "its version is back", world.clock())
    _want(session, world, pair, spec)
    _leave_replaced(session, world, row)


def record(session: Session, row: ResourceRow, spec: ExperimentSpec) -> None:
    """An import: of a run that has ended, what is asked for counts as what was done, so that no later PUT raises it."""
    session.flush()
    version = current_version(session, row)
    if version.run_id is None or not RunState((pair := runs.get(session, version.run_id)).state.state).ended:
        return
    run = pair.run
    run.max_steps = max(run.max_steps, runs.max_steps_of(spec))
    if len(runs.users(session, run.id)) <= 1:
        run.spec, run.tier = spec.model_dump(mode="json"), spec.tier
        run.max_runtime_s, run.max_credits = budgets.max_runtime(spec), budgets.max_credits(spec)


def leave(session: Session, world: World, row: ResourceRow, cause: str) -> None:
    """The experiment is retired: stop its runs, those of earlier versions too, unless another experiment shares them."""
    session.flush()
    for version in _versions(session, row):
        _stop_unless_shared(session, world, version.run_id, cause)


def current_version(session: Session, row: ResourceRow) -> VersionRow:
    """The version row a resource stands at."""
    query = select(VersionRow).where(VersionRow.namespace == row.namespace, VersionRow.kind == row.kind)
    return session.scalars(query.where(VersionRow.name == row.name, VersionRow.version == row.version)).one()


def of_others(session: Session, row: ResourceRow, pair: RunPair) -> bool:
    """Whether the run trains what this resource may use and not change.

    That is what another stack has, and to a namespace whatever is outside it; `main` may lengthen what the
    others of its stack have begun.
    """
    for user in runs.users(session, pair.run.id):
        own = row.namespace in {user.namespace, MAIN}
        if user.stack != row.stack or not own:
            return True
    return False


def _asks_for_more(pair: RunPair, spec: ExperimentSpec) -> bool:
    """Whether a run must be trained on to be what the spec says."""
    more = runs.max_steps_of(spec) > pair.run.max_steps or _further(pair, spec)
    unfinished = RunState(pair.state.state) in runs.UNFINISHED
    return more or (unfinished and _budget_raised(pair.run, spec))


def _budget_raised(run: RunRow, spec: ExperimentSpec) -> bool:
    more_time = _more(budgets.max_runtime(spec), run.max_runtime_s)
    return more_time or _more(budgets.max_credits(spec), run.max_credits)


def _run_for(
    session: Session, world: World, row: ResourceRow, spec: ExperimentSpec, own: str | None
) -> RunPair:
    """An equal run with a result to share, else the version's own, else a new one."""
    fingerprint = Fingerprint.model_validate(row.fingerprint).run
    if (shared := runs.reusable(session, fingerprint, row.rerun)) is not None:
        return shared
    return _new_run(session, world, row, spec) if own is None else runs.get(session, own)


def _new_run(session: Session, world: World, row: ResourceRow, spec: ExperimentSpec) -> RunPair:
    if spec.inputs.reward is not None:
        secrets.require(session, world, spec.inputs.reward.secrets)
    if spec.trainer is not None and not _is(spec.trainer, VERSION):
        message = f"the experiment pins trainer {spec.trainer}; this server trains with {VERSION}"
        raise RefusedError(422, "trainer-not-here", message)
    return runs.create(session, world, row, spec)


def _is(pin: str, version: str) -> bool:
    return version == pin or version.startswith(f"{pin}.")


def _unfinished(session: Session, run_id: str) -> bool:
    return RunState(runs.get(session, run_id).state.state) in runs.UNFINISHED


def _want(session: Session, world: World, pair: RunPair, spec: ExperimentSpec) -> None:
    """Apply the budget and placement of a PUT to its run, new or known."""
    run, state, now = pair.run, RunState(pair.state.state), world.clock()
    more_steps = runs.max_steps_of(spec) > run.max_steps
    runtime, dearest = budgets.max_runtime(spec), budgets.max_credits(spec)
    more_time, more_credits = _more(runtime, run.max_runtime_s), _more(dearest, run.max_credits)
    raised = more_time or more_credits
    moved = (run.tier, *_where(ExperimentSpec.model_validate(run.spec))) != (spec.tier, *_where(spec))
    further = _further(pair, spec)
    alone = len(runs.users(session, run.id)) <= 1
    if more_steps or (alone and not state.ended):  # fewer: a worker learns it from its next report
        run.max_steps = runs.max_steps_of(spec)
    _take_back_stop(pair, more_steps=more_steps)
    if more_time or alone:
        run.max_runtime_s = runtime
    if more_credits or alone:
        run.max_credits = dearest
    if alone:  # equal fingerprints: only budgets, placement and what is recorded can differ
        run.spec = spec.model_dump(mode="json")
    if alone and state not in runs.AT_WORK:
        run.tier = spec.tier
    if alone and moved and state in runs.AT_WORK:
        runs.stop(pair, runs.MOVED, now)
    elif run.stop_cause in runs.STOPPED_BY_US:  # nobody decided against this version; it is back
        _return(pair, now)
    elif state.ended and (more_steps or further):
        what = f"max_steps was raised to {run.max_steps}" if more_steps else "its target_score was raised"
        runs.resume(pair, what, now)
    elif state in runs.UNFINISHED and (raised or (alone and moved)) and not budgets.exceeded(pair, now):
        runs.resume(pair, "its budget was raised" if raised else f"moved to {runs.whereabouts(pair)}", now)


def _take_back_stop(pair: RunPair, *, more_steps: bool) -> None:
    """Who asks for more steps wants the run, also while a stop by a person has not taken effect yet.

    Else its end at the old limit would be taken for the end of what was asked for last.
    """
    ended = RunState(pair.state.state).ended
    if more_steps and not ended and pair.run.stop_cause == runs.BY_A_PERSON:
        pair.run.wanted, pair.run.stop_cause = "run", None


def _where(spec: ExperimentSpec) -> tuple[int, str | None, int]:
    """What decides, beside its tier, where and when it works."""
    return spec.num_nodes, spec.region, spec.priority


def _further(pair: RunPair, spec: ExperimentSpec) -> bool:
    """Whether a run that may have ended at its target has been given a higher one, and steps are left."""
    old = ExperimentSpec.model_validate(pair.run.spec)
    done = Summary.model_validate(pair.state.summary).step
    return _more(_target(spec), _target(old)) and done < pair.run.max_steps


def _target(spec: ExperimentSpec) -> float | None:
    training = spec.manifest.get("training")
    value = training.get("target_score") if isinstance(training, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _return(pair: RunPair, now: float) -> None:
    if RunState(pair.state.state) == RunState.STOPPED:
        runs.resume(pair, "its experiment is back", now)
    pair.run.wanted, pair.run.stop_cause = "run", None


def _leave_replaced(session: Session, world: World, row: ResourceRow) -> None:
    """Stop the runs of other versions; what had begun before one that was made under `keep_old` ends by itself."""
    versions = _versions(session, row)
    kept = max((one.version for one in versions if _keeps_old(one.spec)), default=0)
    for one in versions:
        spared = _keeps_old(row.spec) or one.version < kept
        if one.version != row.version and not (spared and _has_begun(session, one.run_id)):
            _stop_unless_shared(session, world, one.run_id, "replaced")


def _has_begun(session: Session, run_id: str | None) -> bool:
    return run_id is not None and runs.get(session, run_id).state.segments > 0


def _versions(session: Session, row: ResourceRow) -> list[VersionRow]:
    query = select(VersionRow).where(VersionRow.namespace == row.namespace, VersionRow.kind == row.kind)
    return list(session.scalars(query.where(VersionRow.name == row.name)))


def _keeps_old(spec: Mapping[str, Any]) -> bool:
    return bool((spec.get("lifecycle") or {}).get("replace_policy") == "keep_old")


def _stop_unless_shared(session: Session, world: World, run_id: str | None, cause: str) -> None:
    if run_id is not None and not runs.users(session, run_id):
        runs.stop(runs.get(session, run_id), cause, world.clock())


def _more(new: float | None, old: float | None) -> bool:
    return old is not None and (new is None or new > old)


def _files(inputs: JobInputs) -> set[str]:
    files: set[str] = set()
    if inputs.dataset and inputs.dataset.digest:
        files.add(inputs.dataset.digest)
    for part in (inputs.reward, inputs.environment):
        files.update(part.files.values() if part else ())
    return files
