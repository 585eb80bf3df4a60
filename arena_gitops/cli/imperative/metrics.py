"""`arena experiments metrics`: every figure of a run, as a file, a table or JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import click

from arena_gitops.cli import options
from arena_gitops.cli.imperative import tables
from arena_gitops.cli.imperative.completing import names as existing
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.session import Session
from arena_gitops.errors import BlockedError


@explained(
    "arena experiments metrics gsm8k-grpo-v1 --output-file metrics.csv",
    "arena experiments metrics gsm8k-grpo-v1 --metric reward/mean --metric eval/reward --output-file -",
    "arena experiments metrics gsm8k-grpo-v1 --names",
)
@click.command()
@click.argument("experiment_name", shell_complete=existing("experiment"))
@click.option("--metric", "only", metavar="NAME", multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Where the CSV goes; - is stdout. Default: EXPERIMENT-metrics.csv here.",
)
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@click.option(
    "--preview-rows",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many of the last lines to show.",
)
@click.option("--names", is_flag=True, help="Only list which metrics there are.")
@click.option("--project", metavar="NAME", hidden=True, help="Read by other servers.")
@options.target
@options.json
@click.pass_obj
def metrics(
    session: Session,
    *,
    experiment_name: str,
    only: tuple[str, ...],
    output_file: str | None,
    force: bool,
    preview_rows: int,
    names: bool,
    project: str | None,
    target: str | None,
) -> None:
    """Download the metrics of an experiment's run: one line per step and member, one column per metric.

    --json prints an array of objects with step, member (null for the whole population) and the metrics that were
    measured there, and writes a file only if --output-file is given.
    """
    path = _free(_path(output_file, experiment_name, given_json=session.json or names), force=force)
    api = open_place(session, target).api
    if names:
        _tell_names(session, api.metric_names(experiment_name, project))
        return
    text = api.metrics(experiment_name, only, project)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    if session.json:
        session.emit(json.dumps([_typed(row) for row in rows]))
    elif output_file == "-":
        click.echo(text, nl=False)
    else:
        session.say(f"{len(rows)} rows in {path}")
        _preview(rows[len(rows) - min(preview_rows, len(rows)) :])


def _path(output_file: str | None, name: str, *, given_json: bool) -> Path | None:
    if output_file == "-":
        return None
    if output_file is not None:
        return Path(output_file)
    return None if given_json else Path(f"{name.replace('/', '-')}-metrics.csv")


def _free(path: Path | None, *, force: bool) -> Path | None:
    """Before anything is asked: a file that somebody has is not written over."""
    if path is not None and path.exists() and not force:
        raise BlockedError(f"{path} exists; give another --output-file, or --force")
    return path


def _tell_names(session: Session, found: tuple[str, ...]) -> None:
    if session.json:
        session.emit(json.dumps(found, ensure_ascii=False))
    elif found:
        click.echo("\n".join(found))
    else:
        session.say("nothing has been measured yet")


def _preview(rows: list[dict[str, str]]) -> None:
    if rows:
        tables.table(tuple(rows[0]), [[_number(value) for value in row.values()] for row in rows])


def _typed(row: dict[str, str]) -> dict[str, float | int | str | None]:
    """Empty cells are left out, but for `member`."""
    return {key: _number(value) for key, value in row.items() if value or key == "member"}


def _number(value: str) -> float | int | str | None:
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() and "." not in value and "e" not in value.lower() else number
