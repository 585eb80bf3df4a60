"""Which run is next: within a tier by priority, then first come, first served, where there is room beside what works and serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.job import JobInputs, RunState
from arena_gitops.spec.wire import ClaimRequest, DeploymentSpec, Tier
from arena_runner.server.services import hub_rows
from arena_runner.server.services.pair import AT_WORK, RunPair
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import ResourceRow, RevisionRow, RunRow, RunStateRow
from arena_runner.server.world import World
from arena_runner.serving.policy_protocol import POLICIES

UNHINDERED = "waiting for a worker"


@dataclass(frozen=True, slots=True)
class Load:
    """What a tier is busy with."""

    jobs: int = 0
    models: int = 0
    """base models that are served"""


def waiting(session: Session) -> list[RunPair]:
    """Queued runs that shall run: by priority, and the oldest first among equals."""
    query = select(RunRow, RunStateRow).join(RunStateRow).order_by(RunRow.created, RunRow.id)
    query = query.where(RunStateRow.state == RunState.QUEUED, RunRow.wanted == "run")
    pairs = [RunPair(*row) for row in session.execute(query)]
    return sorted(pairs, key=lambda pair: -int(pair.run.spec.get("priority") or 0))


def find(session: Session, world: World, request: ClaimRequest) -> RunPair | None:
    """The run this worker gets: the one it has claimed already and knows nothing of, else the next one."""
    return _answer_lost(session, request) or _next(session, world, request)


def base_ready(run: RunRow) -> bool:
    """Whether the start weights, if any, are known."""
    base = JobInputs.model_validate(run.inputs).base
    return base is None or bool(base.files)


def tier_of(run: RunRow, world: World) -> Tier:
    """The tier a run is done on here."""
    return resolve_tier(run.tier, world.tiers)[0]


def loads(session: Session, world: World) -> Mapping[str, Load]:
    """What every tier is busy with now; a worker that was started but has not claimed yet counts."""
    busy = (RunStateRow.state.in_(AT_WORK)) | RunStateRow.worker_pid.is_not(None)
    working = session.scalars(select(RunRow).join(RunStateRow).where(busy))
    jobs = Counter(tier_of(run, world).id for run in working)
    served = Counter(tier for tier, _ in _served(session, world))
    return {tier.id: Load(jobs[tier.id], served[tier.id]) for tier in world.tiers.tiers}


def obstacle(tier: Tier, load: Load) -> str | None:
    """Why a tier takes no further job now, in words; None when it does."""
    if tier.places is not None and load.jobs >= tier.places:
        return f"waits for a place on tier {tier.id}: {load.jobs} of {tier.places} are taken"
    if tier.job_gb is None:
        return None
    taken = load.jobs * tier.job_gb + load.models * tier.serving_gb
    if taken + tier.job_gb <= tier.ram_gb:
        return None
    if tier.job_gb > tier.ram_gb:
        return f"does not fit tier {tier.id}: a job needs {tier.job_gb:g} GB, there are {tier.ram_gb:g}"
    return (
        f"waits for memory on tier {tier.id}: {taken:g} of {tier.ram_gb:g} GB are taken "
        f"(jobs: {load.jobs}, served models: {load.models}), a job needs {tier.job_gb:g} GB"
    )


def say(pair: RunPair, obstacle: str | None) -> None:
    """Tell people what a queued run waits for."""
    state = pair.state
    waits = state.message.startswith(("waits for ", "does not fit "))
    message = obstacle or (UNHINDERED if waits else state.message)
    if state.message != message:
        state.message = message


def say_alone(pair: RunPair, tier: Tier) -> None:
    """Tell people that no worker is there; why the run waits again, if it does, is the better news."""
    if pair.state.message == UNHINDERED or pair.state.message.startswith(("waits for ", "does not fit ")):
        say(pair, f"waits for a worker of tier {tier.id}; none was heard of lately")


def _answer_lost(session: Session, request: ClaimRequest) -> RunPair | None:
    query = select(RunRow, RunStateRow).join(RunStateRow)
    query = query.where(RunStateRow.state == RunState.VALIDATING, RunStateRow.worker_id == request.worker_id)
    if request.run_id is not None:
        query = query.where(RunRow.id == request.run_id)
    found = session.execute(query.where(RunStateRow.last_seq == 0)).first()
    return RunPair(*found) if found else None


def _next(session: Session, world: World, request: ClaimRequest) -> RunPair | None:
    load = loads(session, world)
    for pair in waiting(session):
        tier = tier_of(pair.run, world)
        if not base_ready(pair.run) or hub_rows.obstacle(session, pair.run):
            continue
        if not _suits(pair, tier, request):
            continue
        full = tier.executor == "pull" and obstacle(tier, load[tier.id]) is not None
        return None if full else pair  # never one past another that comes before it
    return None


def _suits(pair: RunPair, tier: Tier, request: ClaimRequest) -> bool:
    """Whether it is the run that was asked for; the server's own workers ask for one run, whatever its tier."""
    if request.run_id is not None and (pair.run.id != request.run_id or tier.executor == "local"):
        return pair.run.id == request.run_id
    return tier.id == request.tier


def _served(session: Session, world: World) -> set[tuple[str, str]]:
    """Tier and base model of everything that serves, or is about to; policies share one small process and have none."""
    query = select(ResourceRow.spec, RevisionRow.model).join(
        RevisionRow,
        (RevisionRow.namespace == ResourceRow.namespace) & (RevisionRow.deployment == ResourceRow.name),
    )
    query = query.where(ResourceRow.kind == "deployment", ~ResourceRow.retired)
    rows = session.execute(query.where(RevisionRow.state.in_(("loading", "serving"))))
    return {
        (resolve_tier(DeploymentSpec.model_validate(spec).tier, world.tiers)[0].id, model["id"])
        for spec, model in rows
        if model["id"] != POLICIES
    }
