"""`arena-runner work`: the command of a worker, one run for the server's local executor or job after job."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from pathlib import Path
from typing import Any

import click

from arena_gitops.errors import UsageError
from arena_runner import logs
from arena_runner.leaving import Leaving
from arena_runner.models import default_home
from arena_runner.pool import Shift, work_pool
from arena_runner.server_link import RefusedError, ServerLink
from arena_runner.worker import Post, work_one

TOKEN = "ARENA_WORKER_TOKEN"  # noqa: S105 - the name of a variable
LOCAL_GRACE_S = 10.0
"""the time that a server gives its own workers when it stops"""


@click.command("work")
@click.option("--server", required=True, help="URL of the server.")
@click.option("--tier", default="local", show_default=True, help="Tier whose jobs this machine does.")
@click.option("--token", help=f"Better kept out of the list of processes: in {TOKEN}, or a file.")
@click.option(
    "--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File with the token."
)
@click.option(
    "--workdir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Scratch space; default: worker, in $ARENA_HOME.",
)
@click.option("--once", is_flag=True, help="Go when there is nothing to do.")
@click.option("--max-jobs", type=click.IntRange(min=1), help="Go after so many jobs.")
@click.option(
    "--grace",
    type=click.FloatRange(min=1),
    default=20.0,
    show_default=True,
    help="Seconds after SIGTERM in which the iteration may end and be saved.",
)
@click.option("--run", "run_id", help="Only this run; how the server starts its own workers.")
@logs.option
def command(server: str, tier: str, **options: Any) -> None:
    """Train what a server has queued, one job after another. Speaks to that server only."""
    run_id: str | None = options["run_id"]
    logs.configure(options["log_format"] or ("plain" if run_id else "text"), sys.stdout)
    link = ServerLink(server, _token(options["token"], options["token_file"]))
    leaving = Leaving(LOCAL_GRACE_S if run_id else options["grace"])
    try:
        with leaving.on_signals():
            post = _post(tier, options["workdir"], run_id)
            if run_id:
                raise SystemExit(work_one(link, post, run_id, leaving))
            work_pool(link, post, leaving, Shift(once=options["once"], max_jobs=options["max_jobs"]))
    except RefusedError as error:
        raise UsageError(f"the server refused this worker: {error}") from error
    finally:
        link.close()


def _token(given: str | None, file: Path | None) -> str:
    """The token, and out of the environment with it: user code is started from here."""
    variable = os.environ.pop(TOKEN, None)
    token = given or (file.read_text("utf-8").strip() if file else None) or variable
    if not token:
        raise UsageError(f"no token: set {TOKEN}, or name a file with --token-file")
    return token


def _post(tier: str, given: Path | None, run_id: str | None) -> Post:
    models = os.environ.get("ARENA_MODELS_DIR")
    workdir = (given or default_home() / "worker").resolve()
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-.") or "worker"
    worker_id = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
    return Post(
        workdir=workdir,
        models_dir=Path(models) if models else None,
        tier=tier,
        worker_id=worker_id,
        models_cache=None if run_id else workdir / "models",
    )
