"""A worker's job: bring its files here, train, report until nothing is left to report.

It speaks to its server and to nothing else, so it works behind NAT. What it is killed in the middle of, the next
segment continues from the last resume state. It says how a run ended only when the run has ended: a worker that is
told to go, or meets a fault of its own, hands the job back.

Called by `work` (one run, as the server's local executor wants it) and by `pool` (one job after another).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from arena_gitops.errors import ArenaError, PlatformUnreachableError
from arena_gitops.spec.job import FailureReason, Finished, JobEvent, RunState
from arena_gitops.spec.wire import Claim, ClaimRequest
from arena_runner import logs
from arena_runner.bring import AWAY_S, bring
from arena_runner.faults import InputError, OutsideError
from arena_runner.journal import Journal
from arena_runner.leaving import TERMINATED, Leaving
from arena_runner.narrate import line
from arena_runner.patience import patiently
from arena_runner.ports import Files, InterruptedRunError, Stop
from arena_runner.server_link import FencedError, ServerLink
from arena_runner.train import train

CLAIM_S = 60.0

log = logging.getLogger("arena_runner.worker")


@dataclass(frozen=True, slots=True)
class Post:
    """Where a worker stands: its folders and its name."""

    workdir: Path
    models_dir: Path | None
    tier: str
    worker_id: str
    models_cache: Path | None = None
    """where models of the server are kept; None: the models folder is the server's own"""


class Outcome(StrEnum):
    """What became of a job on this worker."""

    ENDED = "ended"
    FENCED = "fenced"
    """somebody else has it"""
    HANDED_BACK = "handed back"


class Reporting:
    """The journal, with what people want to read also in the worker's own log, and the time the job may take."""

    def __init__(self, journal: Journal, longest_s: float | None) -> None:
        self._journal = journal
        self._until = None if longest_s is None else time.monotonic() + longest_s

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Record and print."""
        self._journal.emit(event, files)
        if text := line(event):
            log.info("%s", text)

    def stop(self) -> Stop | None:
        """The journal knows; a budget is kept even while no server is there to say so."""
        if self._until is not None and time.monotonic() >= self._until:
            self._journal.ask_to_stop(Stop.ASKED)
        return self._journal.stop()

    def cap(self) -> int | None:
        """The journal knows."""
        return self._journal.cap()


def work_one(link: ServerLink, post: Post, run_id: str, leaving: Leaving) -> int:
    """Do the next segment of one run; the exit code.

    Raises:
        PlatformUnreachableError: The server did not answer the claim, or did not hear the end.
    """
    request = ClaimRequest(worker_id=post.worker_id, tier=post.tier, run_id=run_id)
    claim = patiently(lambda: link.claim(request), CLAIM_S)
    if claim is None:
        log.info("nothing to do for run %s", run_id)
        return 0
    return TERMINATED if do_job(link, post, claim, leaving) is Outcome.HANDED_BACK else 0


def do_job(link: ServerLink, post: Post, claim: Claim, leaving: Leaving) -> Outcome:
    """One segment of one run, reported to its end, or handed back."""
    job = claim.job
    with logs.about(run_id=job.run_id, segment=job.segment, request_id=job.request_id):
        log.info("run %s, segment %d, request %s", job.run_id, job.segment, job.request_id or "unknown")
        try:
            return _segment(link, post, claim, leaving)
        except Exception as error:
            give_back(link, claim, f"{type(error).__name__}: {error}", fault=True)
            raise


def give_back(link: ServerLink, claim: Claim, why: str, *, fault: bool = False) -> None:
    """Hand the job back; when that does not arrive, the lease runs out and comes to the same."""
    try:
        link.hand_back(claim.fence, why, fault=fault)
    except ArenaError as error:
        log.warning("the job could not be handed back: %s", error)


def _segment(link: ServerLink, post: Post, claim: Claim, leaving: Leaving) -> Outcome:
    job = claim.job
    folder = post.workdir / job.run_id
    path = folder / f"events-{job.segment}.ndjson"
    journal = Journal(path, link, fence=claim.fence, heartbeat_s=claim.heartbeat_s)
    with journal, leaving.holding(journal, lambda why: give_back(link, claim, why)):
        try:
            ports = Reporting(journal, job.limits.max_runtime_s)
            ports.emit(_work(link, post, claim, ports))
        except (InterruptedRunError, FencedError) as error:
            why = error.why if isinstance(error, InterruptedRunError) else Stop.FENCED
            return _left(link, claim, journal, why, leaving)
        if not journal.drain(AWAY_S) and journal.stop() is not Stop.FENCED:
            raise PlatformUnreachableError(
                f"the server did not hear the end of run {job.run_id}; it is in {path}"
            )
    return Outcome.ENDED


def _work(link: ServerLink, post: Post, claim: Claim, ports: Reporting) -> Finished:
    """Bring what the job needs, and train."""
    folder = post.workdir / claim.job.run_id
    try:
        materials = bring(claim.job, link, folder, post.models_dir, post.models_cache)
    except InputError as error:
        return Finished(state=RunState.FAILED, reason=FailureReason.USER_CODE, message=str(error))
    except OutsideError as error:
        return Finished(state=RunState.FAILED, reason=FailureReason.INFRA, message=str(error))
    return train(claim.job, replace(materials, secrets=claim.secrets), ports)


def _left(link: ServerLink, claim: Claim, journal: Journal, why: Stop, leaving: Leaving) -> Outcome:
    """Leave an unfinished run: quietly to its new owner, or back into the queue."""
    if why is Stop.FENCED:
        log.info("the job belongs to another worker now")
        return Outcome.FENCED
    journal.drain(leaving.grace_s / 2)
    log.info("told to go; the run continues from its last resume state")
    give_back(link, claim, "its worker had to go")
    return Outcome.HANDED_BACK
