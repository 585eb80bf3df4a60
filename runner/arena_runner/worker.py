"""A worker: claim a job, bring its files here, train, report until nothing is left to report.

It speaks to its server and to nothing else, so it works behind NAT. What it is killed in the middle of, the next
segment continues from the last resume state. It says how a run ended only when the run has ended: a process that
dies, is told to go, or meets a fault of its own ends non-zero, and the server starts another one.

Called by `arena-runner work`.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import TypeVar

import click

from arena_gitops.errors import ArenaError, PlatformUnreachableError, UsageError
from arena_gitops.spec.job import JobEvent, JobSpec
from arena_gitops.spec.wire import Claim, ClaimRequest
from arena_runner import logs
from arena_runner.checkpoint import file_digest, state_folders
from arena_runner.journal import Journal
from arena_runner.narrate import line
from arena_runner.ports import Files, InterruptedRunError, Materials, Stop
from arena_runner.server_link import FencedError, ServerLink, UnreachableError
from arena_runner.train import train

T = TypeVar("T")

LEAVE_S = 10.0
"""how long after SIGTERM the iteration may take; then the process ends, and the iteration is done again elsewhere"""
AWAY_S = 1800.0
"""how long a finished worker waits for a server that is away, to report the end"""
CLAIM_S = 60.0
POLL_S = 5.0
TERMINATED = 128 + signal.SIGTERM

log = logging.getLogger("arena_runner.worker")


@dataclass(frozen=True, slots=True)
class Post:
    """Where a worker stands: its folders and its name."""

    workdir: Path
    models_dir: Path | None
    tier: str
    worker_id: str


class Narrated:
    """The journal, with what people want to read also on standard output, which is the run's log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def emit(self, event: JobEvent, files: Files | None = None) -> None:
        """Record and print."""
        self._journal.emit(event, files)
        if text := line(event):
            log.info("%s", text)

    def stop(self) -> Stop | None:
        """The journal knows."""
        return self._journal.stop()


def work(link: ServerLink, post: Post, run_id: str | None = None) -> int:
    """Do one job, or with no `run_id` one after another; the exit code.

    Raises:
        PlatformUnreachableError: The server did not answer a claim, or did not hear the end.
    """
    while True:
        claim = _claimed(link, ClaimRequest(worker_id=post.worker_id, tier=post.tier, run_id=run_id))
        if claim is not None:
            job = claim.job
            with logs.about(run_id=job.run_id, segment=job.segment, request_id=job.request_id):
                log.info(
                    "run %s, segment %d, request %s", job.run_id, job.segment, job.request_id or "unknown"
                )
                code = _segment(link, post, claim)
            if run_id is not None or code:
                return code
        elif run_id is not None:
            log.info("nothing to do for run %s", run_id)
            return 0
        else:
            time.sleep(POLL_S)


def _claimed(link: ServerLink, request: ClaimRequest) -> Claim | None:
    return _patiently(lambda: link.claim(request), CLAIM_S)


def _segment(link: ServerLink, post: Post, claim: Claim) -> int:
    """One segment of one run, reported to its end."""
    job = claim.job
    folder = post.workdir / job.run_id
    path = folder / f"events-{job.segment}.ndjson"
    with Journal(path, link, fence=claim.fence, heartbeat_s=claim.heartbeat_s) as journal, _signals(journal):
        try:
            materials = bring(job, link, folder, post.models_dir)
            ports = Narrated(journal)
            ports.emit(train(job, materials, ports))
        except InterruptedRunError as error:
            return _left(journal, error.why)
        except FencedError:
            return _left(journal, Stop.FENCED)
        if not journal.drain(AWAY_S) and journal.stop() is not Stop.FENCED:
            raise PlatformUnreachableError(
                f"the server did not hear the end of run {job.run_id}; it is in {path}"
            )
    return 0


def _left(journal: Journal, why: Stop) -> int:
    """Leave an unfinished run: quietly to its new owner, or with a code that has the server continue it."""
    if why is Stop.FENCED:
        log.info("the job belongs to another worker now")
        return 0
    journal.drain(LEAVE_S / 2)
    log.info("told to go; the run continues from its last resume state")
    return TERMINATED


@contextmanager
def _signals(journal: Journal) -> Iterator[None]:
    """SIGTERM and SIGINT end the run at the end of its iteration, or this process after `LEAVE_S`."""
    timers: list[threading.Timer] = []

    def leave(_number: int, _frame: FrameType | None) -> None:
        journal.ask_to_stop(Stop.INTERRUPTED)
        timers.append(threading.Timer(LEAVE_S, os._exit, (TERMINATED,)))
        timers[-1].daemon = True
        timers[-1].start()

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def bring(job: JobSpec, link: ServerLink, folder: Path, models_dir: Path | None) -> Materials:
    """Download what the job names by digest, unless it is here already."""
    inputs = job.inputs
    dataset: tuple[Path, ...] = ()
    if inputs.dataset and inputs.dataset.digest:
        suffix = inputs.dataset.format or "csv"
        dataset = (_blob(link, folder, inputs.dataset.digest, Path(f"dataset.{suffix}")),)
    return Materials(
        workdir=folder,
        dataset=dataset,
        reward=_laid_out(link, folder, "reward", inputs.reward.files) if inputs.reward else None,
        base=_laid_out(link, folder, "base", inputs.base.files) if inputs.base else None,
        resume=_resume(job, link, folder),
        models_dir=models_dir,
    )


def _blob(link: ServerLink, folder: Path, digest: str, name: Path) -> Path:
    target = folder / "inputs" / name
    if not (target.is_file() and file_digest(target) == digest):
        _patiently(lambda: link.get(digest, target), AWAY_S)
    return target


def _laid_out(link: ServerLink, folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """A folder that holds exactly these files, under their own paths."""
    root = folder / "inputs" / name
    wanted = {_inside(path) for path in files}
    for old in [path for path in root.rglob("*") if path.is_file()]:
        if old.relative_to(root) not in wanted:
            old.unlink()
    for path, digest in files.items():
        _blob(link, folder, digest, Path(name) / _inside(path))
    return root


def _inside(path: str) -> Path:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise ArenaError(f"the job names a file outside its folder: {path}")
    return Path(pure)


def _resume(job: JobSpec, link: ServerLink, folder: Path) -> Path | None:
    """The resume state: this machine's own copy where it has it, else from the server."""
    if job.resume is None:
        return None
    for state in state_folders(folder / "states"):
        if int(state.name) == job.resume.iteration and _same(state, job.resume.files):
            return state
    shutil.rmtree(folder / "inputs" / "resume", ignore_errors=True)
    return _laid_out(link, folder, "resume", job.resume.files)


def _same(state: Path, files: Mapping[str, str]) -> bool:
    return all(
        (state / name).is_file() and file_digest(state / name) == digest for name, digest in files.items()
    )


def _patiently(call: Callable[[], T], patience_s: float) -> T:
    """Repeat a call while the server is away."""
    deadline, wait = time.monotonic() + patience_s, 0.2
    while True:
        try:
            return call()
        except UnreachableError as error:
            if time.monotonic() + wait > deadline:
                raise PlatformUnreachableError(str(error)) from error
        time.sleep(wait)
        wait = min(2 * wait, 10.0)


@click.command("work")
@click.option("--server", required=True, help="URL of the server.")
@click.option("--run", "run_id", help="Only this run; without it the worker asks for one job after another.")
@click.option("--workdir", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--tier", default="local", show_default=True, help="Tier of jobs to ask for.")
@logs.option
def command(server: str, run_id: str | None, workdir: Path, tier: str, log_format: logs.Form | None) -> None:
    """Train what a server has queued; the token comes in ARENA_WORKER_TOKEN."""
    logs.configure(log_format or ("plain" if run_id else "text"), sys.stdout)
    token = os.environ.get("ARENA_WORKER_TOKEN")
    if not token:
        raise UsageError("ARENA_WORKER_TOKEN is not set")
    models = os.environ.get("ARENA_MODELS_DIR")
    worker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    post = Post(workdir.resolve(), Path(models) if models else None, tier, worker_id)
    link = ServerLink(server, token)
    try:
        code = work(link, post, run_id)
    finally:
        link.close()
    if code:
        raise SystemExit(code)
