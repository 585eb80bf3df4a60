"""`arena-runner backup`: everything a server knows, as one file, while it goes on working.

The order makes the copy consistent: first the database, then what it names. Blobs and artifacts never change, so
everything the copied database names is there; MLflow's own database, copied after ours, knows at least as much as
ours believes it does.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
from ruamel.yaml import YAML
from sqlalchemy import URL

from arena_gitops import __version__
from arena_gitops.errors import UsageError
from arena_runner.server.backup import databases
from arena_runner.server.backup.archive import BackupError, Manifest, Writer, writing
from arena_runner.server.home import Home
from arena_runner.server.settings import load_settings
from arena_runner.server.store.address import VARIABLE, database_of
from arena_runner.server.store.database import Store

KEY = "secret.key"


@click.command("backup")
@click.option("--home", type=click.Path(path_type=Path), help="Folder of the server; default $ARENA_HOME.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path, dir_okay=False), required=True, help="New file."
)
@click.option("--database", help=f"Address of its database, if not its own; better in {VARIABLE}.")
@click.option("--with-key", is_flag=True, help="Also the key that opens the stored secrets. Guard that file.")
def command(home: Path | None, target: Path, database: str | None, *, with_key: bool) -> None:
    """Copy everything a server knows into one file; it may be at work."""
    try:
        manifest = make(Home.find(home), target.absolute(), database, with_key=with_key)
    except OSError as problem:
        raise BackupError(f"{target} cannot be written: {problem.strerror}") from problem
    size = sum(entry.size for entry in manifest.files.values())
    click.echo(f"{target}: {len(manifest.files)} files, {size / 2**20:.1f} MiB")
    if not with_key:
        click.echo("without the key of the stored secrets; keep secret.key elsewhere, or use --with-key")


def make(home: Home, target: Path, database: str | None = None, *, with_key: bool = False) -> Manifest:
    """Write a backup of a home."""
    url = database_of(home, load_settings(home.settings), database)
    kind = databases.kind_of(url)
    if kind == "sqlite" and not Path(url.database or "").exists():
        raise UsageError(f"{home.root} is no server's home: it has no database {url.database}")
    created = time.time()
    with (
        writing(target) as writer,
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as scratch,
    ):
        _copy_databases(writer, home, Path(scratch), url)
        with closing(Store(url)) as store:
            lineage = store.lineage()
        _copy_files(writer, home, with_key=with_key)
        manifest = Manifest(
            version=__version__, created=created, database=kind, lineage=lineage, files=writer.files
        )
        writer.close(manifest)
    return manifest


def _copy_databases(writer: Writer, home: Home, scratch: Path, url: URL) -> None:
    ours = scratch / "ours"
    databases.dump(url, ours)
    writer.add(databases.NAMES[databases.kind_of(url)], ours)
    if (home.mlflow / "mlflow.db").exists():
        databases.copy_sqlite(home.mlflow / "mlflow.db", scratch / "mlflow")
        writer.add("mlflow/mlflow.db", scratch / "mlflow")


def _copy_files(writer: Writer, home: Home, *, with_key: bool) -> None:
    if home.settings.exists():
        writer.add_bytes("settings.yaml", _without_database(home.settings))
    if home.tiers.exists():
        writer.add("tiers.yaml", home.tiers)
    if with_key and home.secret_key.exists():
        writer.add(KEY, home.secret_key)
    logs = sorted(home.runs.glob("*/logs/*"))
    for path in [*logs, *_files(home.mlflow / "artifacts"), *_files(home.blobs)]:
        if path.is_file() and not path.is_symlink():
            writer.add(path.relative_to(home.root).as_posix(), path)


def _files(folder: Path) -> Iterator[Path]:
    """Every file that is complete."""
    return (path for path in sorted(folder.rglob("*")) if not path.name.startswith(".incoming-"))


def _without_database(settings: Path) -> bytes:
    """The settings without the address of the database: it may hold a password, and is another's after a restore."""
    yaml = YAML()
    document = yaml.load(settings)
    if isinstance(document, dict):
        document.pop("database", None)
    text = io.BytesIO()
    yaml.dump(document, text)
    return text.getvalue()
