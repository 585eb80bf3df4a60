"""`arena datasets`: rows that are uploaded, or rows on the hub."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from arena_gitops.cli import options
from arena_gitops.cli.duration import Duration
from arena_gitops.cli.imperative import consent, tables
from arena_gitops.cli.imperative.completing import names
from arena_gitops.cli.imperative.explain import explained
from arena_gitops.cli.imperative.place import open_place
from arena_gitops.cli.imperative.stream import uploading
from arena_gitops.cli.session import Session
from arena_gitops.errors import CheckFailedError, UsageError, WaitTimeoutError
from arena_gitops.platforms.arena_api import ArenaApi
from arena_gitops.platforms.arena_rows import CreatedDataset, Dataset, Existence, FoundDataset
from arena_gitops.platforms.multipart import FilePart

TYPES = {".csv": "text/csv", ".jsonl": "application/jsonl", ".parquet": "application/vnd.apache.parquet"}

COLUMNS: tables.Columns[Dataset] = {
    "NAME": lambda row: row.name,
    "CATEGORY": lambda row: row.category,
    "STATUS": lambda row: row.status,
    "ON THE HUB": lambda row: row.hf_dataset_id,
    "COLUMNS": lambda row: ", ".join(f"{role}={column}" for role, column in row.column_mapping.items()),
    "MANAGED BY": lambda row: row.managed_by,
    "ID": lambda row: row.id,
    "DESCRIPTION": lambda row: row.description,
}

FOUND: tables.Columns[FoundDataset] = {
    "NAME": lambda row: row.name,
    "DOWNLOADS": lambda row: row.downloads,
    "LIKES": lambda row: row.likes,
    "DESCRIPTION": lambda row: row.description,
}

LOOK_EVERY_S = 0.5

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(no_args_is_help=True)
def datasets() -> None:
    """List, create and delete datasets."""


@explained("arena datasets list", "arena datasets list --search gsm8k", rows=Dataset)
@datasets.command("list")
@click.option("--search", metavar="TEXT", help="Search the Hugging Face hub instead.")
@options.target
@options.json
@click.pass_obj
def list_(session: Session, *, search: str | None, target: str | None) -> None:
    """List the registered datasets; with --search those of the hub, the most downloaded first."""
    api = open_place(session, target).api
    if search:
        tables.show(session, api.search_datasets(search), FOUND, empty=f"the hub has nothing for {search!r}")
    else:
        tables.show(session, api.datasets(), COLUMNS, empty="no datasets yet")


@explained("arena datasets exists gsm8k || echo create it first", one=Existence)
@datasets.command()
@click.argument("name", shell_complete=names("dataset"))
@options.target
@options.json
@click.pass_context
def exists(ctx: click.Context, *, name: str, target: str | None) -> None:
    """Say whether there is a dataset NAME; exit code 1 when there is none."""
    session = ctx.ensure_object(Session)
    found = open_place(session, target).api.dataset_exists(name)
    if session.json:
        session.emit(found.model_dump_json())
    else:
        click.echo(f"exists: {found.id or name}" if found.exists else "does not exist")
    ctx.exit(0 if found.exists else 1)


@explained(
    "arena datasets create gsm8k --category reasoning --hf-dataset openai/gsm8k --hf-config main --hf-split train \\",
    '    --column-mapping \'{"question": "question", "answer": "answer"}\'',
    "arena datasets create sums --category reasoning --file sums.csv --column-mapping-file columns.json",
    one=CreatedDataset,
)
@datasets.command()
@click.argument("name")
@click.option(
    "--category",
    type=click.Choice(["preference", "reasoning", "sft"], case_sensitive=False),
    required=True,
    help="reasoning: question, answer. preference: prompt, chosen, rejected. sft: prompt, target.",
)
@click.option("--column-mapping", metavar="JSON", help="Which column plays which role, as a JSON object.")
@click.option("--column-mapping-file", type=_FILE, help="The same in a file.")
@click.option("--description", help="What is in it.")
@click.option(
    "--file",
    type=click.Path(exists=True, path_type=Path),
    help="A CSV, JSON lines or parquet file, or a folder of parquet files.",
)
@click.option("--config", help="Which configuration, when a folder holds several.")
@click.option("--hf-dataset", metavar="ID", help="A dataset of the Hugging Face hub, in place of --file.")
@click.option("--hf-config", help="Its configuration.")
@click.option("--hf-split", help="Its split; needed with --hf-dataset.")
@click.option(
    "--wait/--no-wait", default=False, show_default=True, help="Until the hub's rows are on the server."
)
@click.option("--timeout", type=Duration(), help="With --wait: how long, for instance 5m; then exit code 9.")
@options.target
@options.json
@click.pass_obj
def create(session: Session, /, *, name: str, target: str | None, **given: Any) -> None:
    """Register dataset NAME from a file or from the Hugging Face hub.

    The server checks columns and rows of a file before it keeps them; rows of the hub it brings in the background,
    and a run waits for them. The same again is no error; other rows under a name that is taken are. Exit code 10
    with --wait when the rows cannot be brought.
    """
    _check(given)
    fields = {
        "name": name,
        "category": given["category"],
        "column_mapping": _mapping(given["column_mapping"], given["column_mapping_file"]),
        "description": given["description"],
        "config": given["config"],
        "hf_dataset_name": given["hf_dataset"],
        "hf_config": given["hf_config"],
        "hf_split": given["hf_split"],
    }
    files = parts(given["file"]) if given["file"] else []
    sent = uploading(session, given["file"].name if files else name, sum(part.size for part in files))
    api = open_place(session, target).api
    made = api.create_dataset(fields, files, sent)
    if given["wait"]:
        made = _once_ready(api, made, given["timeout"])
    if session.json:
        session.emit(made.model_dump_json())
        return
    if made.message:
        session.say(made.message)
    click.echo(
        f"dataset {made.name} ({made.id or made.name})"
        + ("" if made.is_ready else f", {made.status or 'not ready yet'}")
    )


@explained("arena datasets delete old --yes", one=consent.Deleted)
@datasets.command()
@click.argument("name", shell_complete=names("dataset"))
@consent.yes
@options.target
@options.json
@click.pass_obj
def delete(session: Session, *, name: str, yes: bool, target: str | None) -> None:
    """Delete dataset NAME; runs that use it keep its rows."""
    consent.ask(session, f"Delete dataset {name}", given=yes)
    open_place(session, target).api.delete_dataset(name)
    consent.deleted(session, "dataset", name)


def parts(path: Path) -> list[FilePart]:
    """The files to upload: one, or every parquet file of a folder under its name within it."""
    if path.is_file():
        return [FilePart("file", path.name, path, TYPES.get(path.suffix.lower(), "application/octet-stream"))]
    found = sorted(path.rglob("*.parquet"))
    if not found:
        raise UsageError(f"--file {path}: this folder holds no .parquet file")
    return [FilePart("file", one.relative_to(path).as_posix(), one, TYPES[".parquet"]) for one in found]


def _check(given: dict[str, Any]) -> None:
    if given["file"] and given["hf_dataset"]:
        raise UsageError("give either --file or --hf-dataset, and not both")
    if given["hf_dataset"] and not given["hf_split"]:
        raise UsageError("--hf-dataset needs --hf-split, for instance --hf-split train")
    if not given["hf_dataset"] and (given["hf_config"] or given["hf_split"]):
        raise UsageError("--hf-config and --hf-split are for --hf-dataset")
    if given["timeout"] is not None and not given["wait"]:
        raise UsageError("--timeout is for --wait")


def _once_ready(api: ArenaApi, made: CreatedDataset, timeout_s: float | None) -> CreatedDataset:
    """Look until its rows are there; CheckFailedError when they will never be."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while not made.is_ready:
        row = api.datasets(made.name)[0]
        news = {"is_ready": bool(row.is_ready), "status": row.status, "message": row.message or ""}
        made = made.model_copy(update=news)
        if made.status in {"failed", "empty"}:
            raise CheckFailedError(f"dataset {made.name}: {made.message}")
        if not made.is_ready and deadline is not None and time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"dataset {made.name} is {made.status} after {timeout_s:g} s; its rows are still brought"
            )
        if not made.is_ready:
            time.sleep(LOOK_EVERY_S)
    return made


def _mapping(text: str | None, file: Path | None) -> str:
    """The column mapping, as text that the server reads."""
    if (text is None) == (file is None):
        raise UsageError("give either --column-mapping or --column-mapping-file")
    option = "--column-mapping" if file is None else f"--column-mapping-file {file}"
    given = text if file is None else file.read_text(encoding="utf-8")
    try:
        mapping = json.loads(given or "")
    except ValueError as error:
        raise UsageError(f"{option} is no JSON: {error}") from error
    if not isinstance(mapping, dict) or not all(isinstance(column, str) for column in mapping.values()):
        raise UsageError(f'{option}: expected {{"question": "<column>", …}}')
    return json.dumps(mapping, ensure_ascii=False)
