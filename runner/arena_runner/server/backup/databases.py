"""One consistent copy of a database while others write to it, and the way back.

SQLite by its own backup interface; PostgreSQL by `pg_dump` and `pg_restore`, which must be on PATH. Passwords go to
them in their environment, never on their command line.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, inspect

from arena_runner.server.backup.archive import BackupError
from arena_runner.server.store.address import SECRET, shown
from arena_runner.server.store.database import Store

INSTALL = "install PostgreSQL's client programs (apt-get install postgresql-client)"
NAMES = {"sqlite": "database.sqlite", "postgresql": "database.pgdump"}
"""kind of database → its file in a backup"""


def kind_of(url: URL) -> str:
    """`sqlite` or `postgresql`."""
    return url.get_backend_name()


def copy_sqlite(source: Path, target: Path) -> None:
    """The file as it is at one moment, whoever writes to it meanwhile."""
    address = f"file:{quote(str(source))}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(address, uri=True, timeout=30)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")  # one file, without companions
    except sqlite3.Error as problem:
        raise BackupError(f"{source} cannot be copied to {target.parent}: {problem}") from problem


def dump(url: URL, target: Path) -> None:
    """A copy of the database at one moment."""
    if kind_of(url) == "sqlite":
        copy_sqlite(Path(url.database or ""), target)
    else:
        _run("pg_dump", url, "--format=custom", "--no-owner", "--no-privileges", f"--file={target}")


def check_empty(url: URL) -> None:
    """Refuse a PostgreSQL database that holds anything, before anything is written."""
    if kind_of(url) == "sqlite":
        if Path(url.database or "").exists():
            raise BackupError(f"{url.database} exists already; a backup is restored into a new database only")
        return
    store = Store(url)
    with closing(store), store.connected() as connection:
        tables = inspect(connection).get_table_names()
    if tables:
        raise BackupError(
            f"database {shown(url)} is not empty (it has a table {tables[0]}); create a new one"
        )


def load(url: URL, source: Path) -> None:
    """Fill an empty database with a copy."""
    if kind_of(url) == "sqlite":
        shutil.move(source, url.database or "")
    else:
        _run(
            "pg_restore",
            url,
            "--exit-on-error",
            "--single-transaction",
            "--no-owner",
            "--no-privileges",
            str(source),
        )


def _run(name: str, url: URL, *options: str) -> None:
    program = shutil.which(name)
    if program is None:
        raise BackupError(f"{name} is not on PATH; {INSTALL}")
    secrets = {key: str(value) for key, value in url.query.items() if key in SECRET}
    public = {key: value for key, value in url.query.items() if key not in SECRET}
    password = url.password or secrets.get("password")
    address = URL.create("postgresql", url.username, None, url.host, url.port, url.database, public)
    environment = os.environ | ({"PGPASSWORD": password} if password else {})
    if "passfile" in secrets:
        environment["PGPASSFILE"] = secrets["passfile"]
    done = subprocess.run(
        [program, "--no-password", f"--dbname={address.render_as_string()}", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupError(f"{name} failed on {shown(url)}: {' '.join(done.stderr.split())}")
