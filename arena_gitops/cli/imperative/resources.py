"""`arena resources`: the compute there is, and its price."""

from __future__ import annotations

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.spec.wire import Tier

COLUMNS: tables.Columns[Tier] = {
    "RESOURCE ID": lambda row: row.id,
    "GPUS": lambda row: f"{row.num_gpus}x {row.gpu_type}" if row.num_gpus else None,
    "CPUS": lambda row: row.num_cpus,
    "RAM (GB)": lambda row: row.ram_gb,
    "CREDITS/NODE-HOUR": lambda row: row.credits_per_node_hour,
    "SLOTS": lambda row: row.slots,
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
