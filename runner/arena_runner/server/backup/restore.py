"""`arena-runner restore`: a home and a database out of a backup, into places that hold nothing yet.

All digests are compared before anything is written; the home appears whole under its name at the end. Runs that
were at work continue from their last resume state. The database gets a new lineage: plans that were made against
the one that was backed up are refused, because they may have seen more than this one knows.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import closing
from pathlib import Path

import click
from sqlalchemy import delete, func, select, update

from arena_gitops.errors import UsageError
from arena_runner.server.backup import databases
from arena_runner.server.backup.archive import BackupError, Manifest, unpack, verified
from arena_runner.server.backup.make import KEY
from arena_runner.server.home import Home
from arena_runner.server.services import runs
from arena_runner.server.settings import Settings
from arena_runner.server.store.accounts import SecretRow
from arena_runner.server.store.address import VARIABLE, database_of
from arena_runner.server.store.database import LINEAGE, Store
from arena_runner.server.store.leases import LeaseRow
from arena_runner.server.store.tables import MetaRow, RunStateRow, TokenRow
from arena_runner.server.store.workers import ClaimRow, WorkerRow


@click.command("restore")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--home", type=click.Path(path_type=Path), required=True, help="New folder for the server.")
@click.option("--database", help=f"Address of a new, empty PostgreSQL database; better in {VARIABLE}.")
def command(source: Path, home: Path, database: str | None) -> None:
    """Make a server's home out of the backup SOURCE."""
    place = Home(home.expanduser().resolve())
    try:
        manifest, continued, closed = restore(source, place, database)
    except OSError as problem:
        raise BackupError(f"{place.root} cannot be written: {problem.strerror}") from problem
    click.echo(f"{place.root}: {len(manifest.files)} files restored; {continued} runs will continue")
    if closed:
        click.echo(
            f"{closed} stored secrets cannot be read without their key: put the old secret.key into {place.root},"
            " or set them again"
        )
    click.echo(f"start it: arena-runner server --home {place.root}")


def restore(source: Path, home: Home, database: str | None = None) -> tuple[Manifest, int, int]:
    """Restore; gives the manifest, how many runs will continue, and how many secrets lack their key."""
    _check_unused(home)
    manifest = verified(source)
    url = database_of(home, Settings(), database)
    if databases.kind_of(url) != manifest.database:
        raise UsageError(_other_database(manifest.database))
    databases.check_empty(url)
    folder = home.root.with_name(f".{home.root.name}.restoring")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700, parents=True)
        unpack(source, folder)
        if (folder / KEY).exists():
            (folder / KEY).chmod(0o600)
        dumped = folder / databases.NAMES[manifest.database]
        if manifest.database == "sqlite":
            dumped = dumped.rename(folder / "arena.db")
            continued, closed = _wake(Store(f"sqlite:///{dumped}"), folder, manifest)
        else:
            databases.load(url, dumped)
            dumped.unlink()
            continued, closed = _wake(Store(url), folder, manifest)
        folder.replace(home.root)  # takes the place of an empty folder, and of nothing else
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return manifest, continued, closed


def _check_unused(home: Home) -> None:
    if home.root.exists() and (not home.root.is_dir() or any(home.root.iterdir())):
        raise BackupError(f"{home.root} is not empty; a backup is restored into a new folder only")


def _other_database(kind: str) -> str:
    if kind == "sqlite":
        return f"this is a backup of SQLite: restore it without --database and {VARIABLE}"
    return f"this is a backup of PostgreSQL: name a new, empty database with --database or {VARIABLE}"


def _wake(store: Store, folder: Path, manifest: Manifest) -> tuple[int, int]:
    """Nobody works here yet: workers, their tokens and the leases of applies belong to the home that was copied."""
    with closing(store):
        store.migrate()
        with store.write() as session:
            session.get_one(MetaRow, LINEAGE).value = uuid.uuid4().hex
            session.execute(delete(TokenRow).where(TokenRow.run_id.is_not(None)))
            session.execute(delete(ClaimRow))
            session.execute(delete(WorkerRow))
            session.execute(update(LeaseRow).values(id=None))
            continued = 0
            for state in session.scalars(select(RunStateRow)):
                state.worker_pid = state.worker_started = None
                if state.state in runs.AT_WORK:
                    _continue(runs.get(session, state.run_id), manifest.created)
                    continued += 1
            secrets = session.scalar(select(func.count()).select_from(SecretRow)) or 0
    return continued, 0 if (folder / KEY).exists() else secrets


def _continue(pair: runs.RunPair, then: float) -> None:
    """As if its worker had left when the backup was made: what happened since is not of this database."""
    if pair.run.wanted == "stop":
        runs.settle_stop(pair, then)
    else:
        runs.requeue(pair, "restored from a backup; continues from its last resume state", then)
