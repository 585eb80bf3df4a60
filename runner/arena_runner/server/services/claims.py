"""Tokens of claims: what a worker may read and write is the job it holds now, and nothing of any other.

A claim hands out a token of its own. It dies with the worker's token that asked for it, and it is refused as
`fenced` from the moment when the run's fence has risen: the run has ended, was handed back or is another's.
"""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from arena_runner.server import auth
from arena_runner.server.auth import Identity, NewToken, Role
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import runs
from arena_runner.server.services.pair import RunPair
from arena_runner.server.store.tables import RunStateRow, TokenRow
from arena_runner.server.store.workers import ClaimRow

KEPT_S = 24 * 3600.0
"""how long a claim that is over is told apart from one that never was"""


def hand_out(session: Session, pair: RunPair, asked: Identity, now: float) -> str:
    """A token for the segment that has just been claimed; its text is stored nowhere."""
    text = auth.new_text()
    run, state = pair.run, pair.state
    subject = f"worker of {run.id}"
    token = NewToken(Role.WORKER, subject, parent=asked.token_id, run_id=run.id, tier=asked.tier)
    auth.store(session, text, token, now)
    claim = ClaimRow(token_id=auth.token_id(text), run_id=run.id, segment=state.segments - 1)
    claim.fence, claim.worker_id, claim.claimed = state.fence, state.worker_id or "", now
    session.add(claim)
    return text


def check_asks(session: Session, caller: Identity) -> None:
    """Refuse a claim that is asked for with the token of another claim."""
    if session.get(ClaimRow, caller.token_id) is not None:
        raise RefusedError(403, "forbidden", "a claim's token opens its job; ask with the worker's own token")


def check_holds(session: Session, caller: Identity, run_id: str | None = None) -> RunPair:
    """The job a worker's token opens now; 403 when it opens another, 409 when it opens none or it is over."""
    if caller.run_id is None:
        message = "claim a job first; the token in its answer opens what belongs to the job"
        raise RefusedError(409, "no-claim", message)
    caller.check_run(run_id or caller.run_id)
    pair = runs.get(session, caller.run_id)
    claim = session.get(ClaimRow, caller.token_id)
    if claim is not None and claim.fence != pair.state.fence:
        raise fenced(pair, claim.segment, claim.fence)
    return pair


def check_speaks(session: Session, caller: Identity, run_id: str, fence: int) -> None:
    """Refuse a report that is not made in the name of the caller's own claim; `jobs` compares the fence itself."""
    if caller.role is not Role.WORKER:
        return
    if caller.run_id is None:
        raise RefusedError(409, "no-claim", "report with the token that the claim's answer holds")
    caller.check_run(run_id)
    claim = session.get(ClaimRow, caller.token_id)
    if claim is not None and claim.fence != fence:
        raise fenced(runs.get(session, run_id), claim.segment, claim.fence)


def fenced(pair: RunPair, segment: int, fence: int) -> RefusedError:
    """409: somebody else has the job, or nobody."""
    message = f"run {pair.run.id} is no longer yours: segment {segment} fence {fence} is over"
    details = {"segment": str(pair.state.segments - 1), "fence": str(pair.state.fence)}
    return RefusedError(409, "fenced", message, details)


def forget_old(session: Session, now: float) -> None:
    """Drop the tokens of claims that were over long ago."""
    old = select(ClaimRow.token_id).join(RunStateRow, RunStateRow.run_id == ClaimRow.run_id)
    old = old.where(ClaimRow.claimed < now - KEPT_S, ClaimRow.fence != RunStateRow.fence)
    ids = list(session.scalars(old))
    session.execute(delete(TokenRow).where(TokenRow.id.in_(ids)))
    session.execute(delete(ClaimRow).where(ClaimRow.token_id.in_(ids)))
