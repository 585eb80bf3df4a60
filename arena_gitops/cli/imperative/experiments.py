"""`arena experiments`: submit a manifest, follow what it trains, stop it, let it go on."""

from __future__ import annotations

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.following import logs, status, wait
from arena_gitops.cli.imperative.metrics import metrics
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.imperative.submitting import submit
from arena_gitops.cli.session import Session
from arena_gitops.platforms.arena_rows import CheckpointRow, Experiment, RunOfExperiment

COLUMNS: tables.Columns[Experiment] = {
    "NAME": lambda row: row.name,
    "PROJECT": lambda row: row.project,
    "ALGORITHM": lambda row: row.algorithm,
    "STATUS": lambda row: row.status + (f" ({row.reason})" if row.reason else "") if row.status else None,
    "STEP": lambda row: _of(row.step, row.max_steps),
    "FITNESS": lambda row: row.fitness,
    "VERSION": lambda row: row.version,
    "RUN": lambda row: row.run_id,
    "MANAGED BY": lambda row: row.managed_by,
}

CHECKPOINTS: tables.Columns[CheckpointRow] = {
    "STEPS": lambda row: row.steps,
    "NAME": lambda row: row.name,
    "FITNESS": lambda row: row.fitness,
    "BEST": lambda row: "best" if row.best else "",
    "MEMBER": lambda row: row.member,
    "GENERATION": lambda row: row.generation,
    "SIZE (MB)": lambda row: row.size_mb,
    "DIGEST": lambda row: row.digest,
}


@click.group(no_args_is_help=True)
def experiments() -> None:
    """Submit, follow, stop and resume experiments."""


for _command in (submit, status, logs, wait, metrics):
    experiments.add_command(_command)


@explained("arena experiments list --project 'GSM8K Tutorial'", rows=Experiment)
@experiments.command("list")
@click.option("--project", metavar="NAME", shell_complete=names("project"), help="Only those of a project.")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, *, project: str | None, target: str | None) -> None:
    """List experiments; all of them unless --project is given."""
    found = open_place(session, target).api.experiments(project)
    tables.show(session, found, COLUMNS, empty="no experiments" + (f" in {project}" if project else " yet"))


@explained("arena experiments stop gsm8k-grpo-v1", one=RunOfExperiment)
@experiments.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@options.target
@options.json
@click.pass_obj
def stop(session: Session, *, experiment_name: str, target: str | None) -> None:
    """Ask an experiment to stop at the end of its iteration; what was saved stays."""
    _tell(session, open_place(session, target).api.stop(experiment_name), "stopping")


@explained("arena experiments resume gsm8k-grpo-v1 --max-steps 200000", one=RunOfExperiment)
@experiments.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@click.option("--max-steps", type=click.IntRange(min=1), required=True, help="How far it shall go, in all.")
@options.target
@options.json
@click.pass_obj
def resume(session: Session, *, experiment_name: str, max_steps: int, target: str | None) -> None:
    """Let an experiment go on from its last saved state."""
    _tell(session, open_place(session, target).api.resume(experiment_name, max_steps), "resumed")


@explained("arena experiments checkpoints gsm8k-grpo-v1", rows=CheckpointRow)
@experiments.command()
@click.argument("experiment_name", shell_complete=names("experiment"))
@options.target
@options.json
@click.pass_obj
def checkpoints(session: Session, *, experiment_name: str, target: str | None) -> None:
    """List what an experiment has saved; NAME is what `agent deploy --checkpoint` takes."""
    found = open_place(session, target).api.checkpoints(experiment_name)
    tables.show(session, found, CHECKPOINTS, empty=f"{experiment_name} has saved no checkpoint yet")


def _tell(session: Session, run: RunOfExperiment, done: str) -> None:
    if session.json:
        session.emit(run.model_dump_json())
        return
    state = f"{run.status}, {done}" if run.status in {"queued", "running", "validating"} else f"{run.status}"
    click.echo(
        f"experiment {run.experiment_name}: {state}, step {_of(run.step, run.max_steps)}, run {run.run_id}"
    )


def _of(step: int | None, goal: int | None) -> str | None:
    return None if goal is None else f"{step}/{goal}"
