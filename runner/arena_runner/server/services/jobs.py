"""What workers do: claim a run, report its events, hand it back. A repeat of any is harmless.

A claim raises the run's fence; reports with an older one are refused, so a worker that was thought dead cannot
write into what its successor does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import (
    CheckpointSaved,
    FailureReason,
    Filmed,
    Finished,
    JobEvent,
    JobInputs,
    JobLimits,
    JobSpec,
    ModelRef,
    ResumeState,
    ResumeStateSaved,
    RunState,
    Started,
)
from arena_gitops.spec.wire import Claim, ClaimRequest, EventBatch, EventReceipt, ExperimentSpec
from arena_gitops.spec.worker import HandBack
from arena_runner.server.auth import Identity
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import budgets, claims, hub_rows, queue, retries, run_log, runs, secrets
from arena_runner.server.services.pair import RunPair
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import CheckpointRow, EventRow, RunRow
from arena_runner.server.summary import Summary, fold
from arena_runner.server.world import World

HEARTBEATS = 6
"""in the time of a lease: so many may be lost but one"""

DEFAULT_SEED = 42
"""What the published manifest schema says for `rand_seed`."""


def claim(world: World, request: ClaimRequest, asked: Identity | None = None) -> Claim | None:
    """Give a queued run to a worker, with a token for it; None when there is nothing for it."""
    if world.draining.is_set():
        return None
    with world.store.read() as session:
        if queue.find(session, world, request) is None:
            return None  # the usual answer takes no lock
    with world.store.write() as session:
        pair = queue.find(session, world, request)
        if pair is None:
            return None
        if pair.state.state == RunState.QUEUED:
            hub_rows.pin(session, pair.run)
            _take(pair, request, world)
        token = claims.hand_out(session, pair, asked, world.clock()) if asked else None
        job, fence = job_spec(pair, world), pair.state.fence
        reward = job.inputs.reward
        told = secrets.values(session, world, reward.secrets) if reward else {}
    world.bell.ring()
    heartbeat_s = world.settings.worker.lease_s / HEARTBEATS
    return Claim(job=job, fence=fence, heartbeat_s=heartbeat_s, token=token, secrets=told)


def hand_back(world: World, run_id: str, segment: int, given: HandBack) -> None:
    """Queue a run again whose worker has to go, or could not go on."""
    now = world.clock()
    with world.store.write() as session:
        pair = runs.get(session, run_id)
        _check_fence(pair, segment, given.fence)
        if RunState(pair.state.state).ended:
            raise claims.fenced(pair, segment, given.fence)
        if pair.run.wanted == "stop":
            runs.settle_stop(pair, now)
        elif given.fault:
            runs.lose_worker(pair, given.message or "its worker failed", now)
        else:
            runs.requeue(pair, _continues(pair, world, given.message), now)
    world.bell.ring()


def report(world: World, run_id: str, segment: int, batch: EventBatch) -> EventReceipt:
    """Record a segment's next events; says how far they were accepted and whether to go on."""
    with world.store.write() as session:
        pair = runs.get(session, run_id)
        _check_fence(pair, segment, batch.fence)
        if RunState(pair.state.state).ended:
            if not _said_its_end(session, pair):
                raise claims.fenced(pair, segment, batch.fence)  # it was ended over the worker's head
            # The answer to its last batch was lost.
            return EventReceipt(accepted_seq=pair.state.last_seq, directive="stop")
        pulls = pair.state.worker_pid is None
        pair.state.heartbeat = pair.state.updated = world.clock()
        new = _record(session, world, pair, batch.events)
        receipt = EventReceipt(
            accepted_seq=pair.state.last_seq, directive=_directive(pair), max_steps=_asked(pair, world)
        )
    if pulls:
        run_log.narrate(world, run_id, new)
    if any(isinstance(event, Finished) for event in batch.events):
        world.bell.ring()  # everything else can wait for the controllers' next look
    return receipt


def job_spec(pair: RunPair, world: World) -> JobSpec:
    """The run's current segment as its worker receives it."""
    spec = ExperimentSpec.model_validate(pair.run.spec)
    model = model_of(pair, world)
    remaining = budgets.left_s(pair, world.clock())
    return JobSpec(
        run_id=pair.run.id,
        segment=pair.state.segments - 1,
        experiment=pair.run.experiment,
        fingerprint=pair.run.fingerprint,
        manifest=_manifest(spec, pair.run.max_steps, model),
        inputs=JobInputs.model_validate(pair.run.inputs),
        model=model,
        seed=_seed(spec.manifest),
        tier=resolve_tier(pair.run.tier, world.tiers)[0].id,
        limits=JobLimits(
            max_steps=world.settings.limits.max_steps,
            max_runtime_s=None if remaining is None else max(0.0, remaining),
        ),
        resume=ResumeState.model_validate(pair.state.resume) if pair.state.resume else None,
        request_id=pair.run.request_id,
    )


def mapped_model(model: ModelRef | None, world: World) -> ModelRef | None:
    """The base model this server uses for the one that was asked for (`settings.yaml: models.map`)."""
    if model is None or model.id not in world.settings.models.map:
        return model
    return ModelRef(id=world.settings.models.map[model.id])


def model_of(pair: RunPair, world: World) -> ModelRef | None:
    """The run's base model: as its first worker resolved it, else as this server maps what was asked for."""
    if pair.state.model is not None:
        return ModelRef.model_validate(pair.state.model)
    return mapped_model(ExperimentSpec.model_validate(pair.run.spec).model, world)


def digests(pair: RunPair) -> frozenset[str]:
    """Every blob the run's worker may read."""
    return frozenset(_digests([pair.run.inputs, pair.state.resume, pair.state.resume_before]))


def effective_max_steps(run: RunRow, world: World) -> int:
    """What the worker will stop at."""
    limit = world.settings.limits.max_steps
    return run.max_steps if limit is None else min(limit, run.max_steps)


def _take(pair: RunPair, request: ClaimRequest, world: World) -> None:
    now = world.clock()
    state = pair.state
    state.state, state.reason, state.message = RunState.VALIDATING, None, "the worker is loading"
    state.fence += 1
    state.segments += 1
    state.last_seq = 0
    state.worker_id, state.claimed, state.heartbeat, state.updated = request.worker_id, now, now, now
    state.rate = budgets.price(pair.run, world)
    state.job_max_steps = effective_max_steps(pair.run, world)


def _check_fence(pair: RunPair, segment: int, fence: int) -> None:
    current = pair.state.segments - 1
    ended = RunState(pair.state.state).ended
    # Ending a run raises the fence too; its own worker may still repeat its last batch.
    valid = {pair.state.fence, pair.state.fence - 1} if ended else {pair.state.fence}
    if segment != current or fence not in valid:
        raise claims.fenced(pair, segment, fence)


def _said_its_end(session: Session, pair: RunPair) -> bool:
    """Whether the last thing a run's worker reported is how the run ended."""
    last = select(EventRow.type).where(EventRow.run_id == pair.run.id, EventRow.seq == pair.state.last_seq)
    return session.scalar(last.where(EventRow.segment == pair.state.segments - 1)) == "finished"


def _record(session: Session, world: World, pair: RunPair, events: Iterable[JobEvent]) -> list[JobEvent]:
    """Store what is next; gives what was new."""
    state, new = pair.state, []
    summary = Summary.model_validate(state.summary)
    for event in events:
        if event.seq <= state.last_seq:
            continue  # a repeat
        if event.seq != state.last_seq + 1:
            break  # a gap: the receipt tells the worker where to go on
        _check_uploads(world, event)
        state.last_seq, state.last_index = event.seq, state.last_index + 1
        row = EventRow(run_id=pair.run.id, position=state.last_index, segment=state.segments - 1)
        row.seq, row.type, row.tracked = event.seq, event.type, False
        row.body = event.model_dump(mode="json")
        session.add(row)
        summary = fold(summary, event)
        _act(session, world, pair, event)
        new.append(event)
    state.summary = summary.model_dump(mode="json")
    return new


def _act(session: Session, world: World, pair: RunPair, event: JobEvent) -> None:
    """What an event changes beyond the figures."""
    match event:
        case Started():
            pair.state.state, pair.state.message = RunState.RUNNING, ""
            if pair.state.model is None and event.model is not None:
                pair.state.model = event.model.model_dump(mode="json")
        case CheckpointSaved():
            _keep_checkpoint(session, pair, event)
        case ResumeStateSaved():
            _keep_resume_state(pair, event)
        case Finished():
            _finish(pair, event, world)
        case _:
            pass


def _check_uploads(world: World, event: JobEvent) -> None:
    files: dict[str, str] = {}
    if isinstance(event, CheckpointSaved):
        files = event.checkpoint.files
    elif isinstance(event, ResumeStateSaved):
        files = event.state.files
    elif isinstance(event, Filmed):
        files = event.files
    missing = world.blobs.missing(files.values())
    if missing:
        message = f"event {event.seq} names blobs that were not uploaded: {', '.join(missing)}"
        raise RefusedError(422, "blob-missing", message)


def _keep_checkpoint(session: Session, pair: RunPair, event: CheckpointSaved) -> None:
    saved = event.checkpoint
    query = select(CheckpointRow.id).where(CheckpointRow.run_id == pair.run.id)
    if session.scalar(query.where(CheckpointRow.step == saved.step, CheckpointRow.member == saved.member)):
        return  # a resumed segment repeats itself; the first is what was registered
    row = CheckpointRow(run_id=pair.run.id, position=pair.state.last_index, **saved.model_dump(mode="json"))
    session.add(row)
    session.flush()


def _keep_resume_state(pair: RunPair, event: ResumeStateSaved) -> None:
    newest = pair.state.resume
    if newest is None or event.state.iteration > newest["iteration"]:
        pair.state.restarts = 0
    pair.state.resume_before = newest
    pair.state.resume = event.state.model_dump(mode="json")


def _finish(pair: RunPair, event: Finished, world: World) -> None:
    now = world.clock()
    if event.state == RunState.COMPLETED:
        _complete(pair, event, world)
    elif pair.run.wanted == "stop" and event.state == RunState.STOPPED:
        runs.settle_stop(pair, now)
    elif world.draining.is_set() and event.state == RunState.STOPPED:
        runs.requeue(pair, "the server was stopped; continues when it is started", now)
    elif event.state == RunState.STOPPED and budgets.exceeded(pair, now):
        runs.stop(pair, "budget", now)
        runs.settle_stop(pair, now)
    elif event.state == RunState.STOPPED or event.reason in {FailureReason.INFRA, None}:
        runs.lose_worker(pair, event.message or "the worker stopped unasked", now)
    elif pair.run.wanted == "run" and retries.once_more(pair, event.reason):
        again = f"continues from {runs.place(pair)} ({retries.told(pair)})"
        runs.requeue(pair, f"failed ({event.reason}): {event.message}; {again}", now)
    else:
        runs.end(pair, RunState.FAILED, now, reason=event.reason, message=event.message)


def _continues(pair: RunPair, world: World, why: str) -> str:
    """Why a run waits again that nobody has failed on."""
    if world.draining.is_set():
        return "the server was stopped; continues when it is started"
    return f"{why or 'its worker had to go'}; continues from {runs.place(pair)}"


def _complete(pair: RunPair, event: Finished, world: World) -> None:
    now, done = world.clock(), pair.state.job_max_steps or 0
    wanted = effective_max_steps(pair.run, world)
    if pair.run.wanted == "run" and wanted > done and pair.state.resume:
        runs.requeue(pair, f"max_steps was raised from {done} to {wanted}", now)
        return
    capped = f"capped at {done} of {pair.run.max_steps}" if done < pair.run.max_steps else ""
    runs.end(pair, RunState.COMPLETED, now, message=event.message or capped)


def _directive(pair: RunPair) -> Literal["continue", "stop"]:
    over = pair.state.state not in runs.AT_WORK
    return "stop" if over or pair.run.wanted == "stop" else "continue"


def _asked(pair: RunPair, world: World) -> int | None:
    """Steps that the segment at work shall end at: what it was given, or less; None where epochs count.

    What a worker has been told once is what it ends at: more than that again is for the segment after it.
    """
    training = pair.run.spec["manifest"].get("training")
    if not isinstance(training, dict) or training.get("num_epochs") is not None:
        return None
    asked = effective_max_steps(pair.run, world)
    pair.state.job_max_steps = min(asked, pair.state.job_max_steps or asked)
    return pair.state.job_max_steps


def _manifest(spec: ExperimentSpec, max_steps: int, model: ModelRef | None) -> dict[str, Any]:
    manifest: dict[str, Any] = dict(spec.manifest)
    if isinstance(training := manifest.get("training"), dict):
        manifest["training"] = {**training, "max_steps": max_steps}
    network = manifest.get("network")
    if model != spec.model and model is not None and isinstance(network, dict):
        manifest["network"] = {**network, "pretrained_model_name_or_path": model.id}
    return manifest


def _seed(manifest: dict[str, Any]) -> int:
    for section, key in (("mutation", "rand_seed"), ("algorithm", "seed")):
        part = manifest.get(section)
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(value, int):
            return value
    return DEFAULT_SEED


def _digests(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return [value] if value.startswith("sha256:") else []
    if isinstance(value, dict):
        value = list(value.values())
    return [d for item in value for d in _digests(item)] if isinstance(value, list) else []
