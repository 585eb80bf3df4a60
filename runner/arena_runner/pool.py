"""A worker of a pool: introduce yourself, ask for one job after another, and go in good order.

A server that is away is waited for; a worker that the server has forgotten introduces itself again. Questions are
spread in time, so that many workers do not ask all at once.
"""

from __future__ import annotations

import gc
import logging
import random
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from arena_gitops import __version__
from arena_gitops.errors import ArenaError
from arena_gitops.spec.wire import Claim, ClaimRequest
from arena_gitops.spec.worker import WorkerHello
from arena_runner.leaving import Leaving
from arena_runner.server_link import FencedError, ServerLink, UnreachableError
from arena_runner.worker import Outcome, Post, do_job

FIRST_WAIT_S = 0.5
AWAY_WAIT_S = 30.0
KEPT_S = 3 * 24 * 3600.0
"""how long what is left of a job that ended elsewhere is kept; a worker that gets it again saves the download"""

log = logging.getLogger("arena_runner.worker")


@dataclass(frozen=True, slots=True)
class Shift:
    """When a worker goes by itself."""

    once: bool = False
    """when there is nothing to do"""
    max_jobs: int | None = None


def work_pool(link: ServerLink, post: Post, leaving: Leaving, shift: Shift) -> int:
    """Work until told to go, or until the shift is over; how many jobs were done."""
    done, wait = 0, FIRST_WAIT_S
    longest = _introduce(link, post, leaving)
    while not leaving.asked.is_set() and (shift.max_jobs is None or done < shift.max_jobs):
        claim = _next(link, post, leaving)
        if claim is None:
            if shift.once:
                break
            leaving.asked.wait(wait * random.uniform(0.7, 1.3))  # noqa: S311 - spreads questions, guards nothing
            wait = min(2 * wait, longest)
            continue
        wait, done = FIRST_WAIT_S, done + 1
        tidy(post.workdir, claim.job.run_id)
        if do_job(link, post, claim, leaving) is Outcome.ENDED:
            shutil.rmtree(post.workdir / claim.job.run_id)  # the server has all of it
        _free_memory()
    _say_goodbye(link, post)
    return done


def tidy(workdir: Path, current: str) -> None:
    """Remove what is left of jobs that nobody has asked this worker to continue for long."""
    if not workdir.is_dir():
        return
    for folder in workdir.glob("r_*"):
        if folder.name != current and time.time() - folder.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder)


def _introduce(link: ServerLink, post: Post, leaving: Leaving) -> float:
    """Register, waiting for a server that is away; the longest wait between two questions."""
    hello = WorkerHello(
        worker_id=post.worker_id, hostname=socket.gethostname(), tier=post.tier, version=__version__
    )
    wait = FIRST_WAIT_S
    while not leaving.asked.is_set():
        try:
            welcome = link.register(hello)
        except UnreachableError as error:
            log.warning("the server does not answer (%s); asking again in %.0f s", error, wait)
            leaving.asked.wait(wait)
            wait = min(2 * wait, AWAY_WAIT_S)
        else:
            log.info("worker %s of tier %s is ready", post.worker_id, welcome.tier)
            return welcome.poll_s
    return FIRST_WAIT_S


def _next(link: ServerLink, post: Post, leaving: Leaving) -> Claim | None:
    """A job, if there is one."""
    try:
        return link.claim(ClaimRequest(worker_id=post.worker_id, tier=post.tier))
    except FencedError:  # the server was restored, or has not heard of us for long
        _introduce(link, post, leaving)
    except UnreachableError as error:
        log.warning("the server does not answer: %s", error)
    return None


def _free_memory() -> None:
    """What the last job held is not the next one's."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say_goodbye(link: ServerLink, post: Post) -> None:
    try:
        link.leave(post.worker_id)
    except ArenaError as error:  # it is listed as lost for a while
        log.warning("the server did not hear that this worker goes: %s", error)
