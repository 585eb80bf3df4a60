"""`arena resources`: the compute there is, and its price."""

from __future__ import annotations

import time

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.spec.wire import Tier
from arena_gitops.spec.worker import WorkerStatus

COLUMNS: tables.Columns[Tier] = {
    "RESOURCE ID": lambda row: row.id,
    "GPUS": lambda row: f"{row.num_gpus}x {row.gpu_type}" if row.num_gpus else None,
    "CPUS": lambda row: row.num_cpus,
    "RAM (GB)": lambda row: row.ram_gb,
    "CREDITS/NODE-HOUR": lambda row: row.credits_per_node_hour,
    "SLOTS": lambda row: row.places,
    "DONE BY": lambda row: "workers that pull" if row.executor == "pull" else "the server",
}
WORKERS: tables.Columns[WorkerStatus] = {
    "WORKER": lambda row: row.worker_id,
    "HOST": lambda row: row.hostname,
    "TIER": lambda row: row.tier,
    "STATE": lambda row: row.state,
    "EXPERIMENT": lambda row: row.experiment,
    "RUN": lambda row: row.run_id,
    "HEARD OF": lambda row: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.heartbeat)),
    "VERSION": lambda row: row.version,
}


@click.group(no_args_is_help=True)
def resources() -> None:
    """Show the compute of the server."""


@explained("arena resources list", rows=Tier)
@resources.command("list")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, target: str | None) -> None:
    """List the compute tiers, for --resource-id and for `tier:` in a repository."""
    tables.show(session, open_place(session, target).native.tiers(), COLUMNS, empty="this server has no tier")


@explained("arena resources workers", rows=WorkerStatus)
@resources.command()
@options.target
@options.json
@click.pass_obj
def workers(session: Session, target: str | None) -> None:
    """List the workers there are: their tier, what they do, and when they were heard of last."""
    found = open_place(session, target).native.workers()
    tables.show(
        session, found, WORKERS, empty="no worker is there; the server starts its own when a run needs one"
    )
