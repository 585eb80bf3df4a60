"""A throw-away PostgreSQL on loopback, and databases in it: without tables, or migrated and empty.

PostgreSQL refuses to run as root; there its own user `postgres` owns the folder and the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

INSTALL = "apt-get install -y postgresql"
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB")
"""It is thrown away: nothing in it need survive a power cut."""
USER = "arena"


def programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path and shutil.which("initdb") else None


@dataclass
class Cluster:
    """One running PostgreSQL, and what it takes to reach it."""

    port: int
    process: subprocess.Popen
    free: list[str] = field(default_factory=list)
    """migrated databases that nobody uses"""
    revision: str | None = None

    def url(self, database: str) -> str:
        """As `--database` takes it."""
        return f"postgresql://{USER}:hush@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str | None:
        """Run statements outside a transaction; the first value of the answer, if there is one."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of a new database, dropped at the end whoever still uses it."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        self.sql(f"create database {name} template template0")
        try:
            yield self.url(name)
        finally:
            self.sql(f"drop database {name} with (force)")

    @contextmanager
    def world(self) -> Iterator[str]:
        """A database that has every table and nothing in them: one that is free again, or a new one."""
        name = self.free.pop() if self.free else self._migrated()
        try:
            yield self.url(name)
        finally:
            if self._emptied(name):
                self.free.append(name)
            else:
                self.sql(f"drop database {name} with (force)")

    def _emptied(self, name: str) -> bool:
        """Whether it is as good as new; a test may have changed its tables."""
        import psycopg

        from arena_runner.server.store.schema import every_table

        deletes = [f"delete from {table.name}" for table in reversed(every_table().sorted_tables)]
        try:
            self.sql("set lock_timeout = '10s'; " + "; ".join(deletes), name)
            return self.sql("select version_num from alembic_version", name) == self.revision
        except psycopg.Error:
            return False

    def _migrated(self) -> str:
        from arena_runner.server.store.database import Store

        name = f"t_{uuid.uuid4().hex[:12]}"
        self.sql(f"create database {name} template template0")
        Store.open(self.url(name)).close()
        self.sql("delete from meta", name)  # its lineage: every world has its own
        self.revision = self.sql("select version_num from alembic_version", name)
        return name


def _as_postgres(command: list[str], **options) -> subprocess.Popen:
    user = "postgres" if os.getuid() == 0 else None
    return subprocess.Popen(command, user=user, group=user, extra_groups=[] if user else None, **options)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _initialise(folder: Path, bin_: Path) -> None:
    password = folder / "password"
    password.write_text("hush\n")
    if os.getuid() == 0:
        for path in (folder, password):
            shutil.chown(path, "postgres", "postgres")
    command = [str(bin_ / "initdb"), "--pgdata", str(folder / "data"), "--username", USER, "--no-sync"]
    command += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C.UTF-8"]
    process = _as_postgres(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start one, stop it, leave nothing."""
    bin_ = programs()
    if bin_ is None:
        pytest.skip(f"PostgreSQL is not installed here: {INSTALL}")
    # Not below pytest's folder: that one is closed to other users, and PostgreSQL's own user is one.
    folder = Path(tempfile.mkdtemp(prefix="arena-pg-"))
    port = _free_port()
    try:
        _initialise(folder, bin_)
        settings = [*FAST, "listen_addresses=127.0.0.1", f"port={port}", "max_connections=200"]
        settings += ["unix_socket_directories=", "logging_collector=off", "timezone=UTC"]
        options = [part for setting in settings for part in ("-c", setting)]
        command = [str(bin_ / "postgres"), "-D", str(folder / "data"), *options]
        with (folder / "log").open("wb") as log:
            process = _as_postgres(command, stdout=log, stderr=log, cwd=folder)
        try:
            made = Cluster(port, process)
            _wait(made, folder / "log")
            yield made
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(30)
    finally:
        shutil.rmtree(folder)


def _wait(made: Cluster, log: Path) -> None:
    import time

    import psycopg

    deadline = time.monotonic() + 30
    while True:
        try:
            made.sql("select 1")
        except psycopg.OperationalError:
            assert made.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL for the whole session; the test is skipped where it is not installed."""
    with cluster() as made:
        yield made


@dataclass
class Databases:
    """Fresh databases of one kind, for homes."""

    kind: str
    postgres: Cluster | None
    folder: Path
    """for what is made once"""

    @contextmanager
    def world(self, home: Path) -> Iterator[str]:
        """The address of a migrated database that has no lineage yet."""
        if self.postgres is not None:
            with self.postgres.world() as url:
                yield url
        else:
            home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._sqlite(), home / "arena.db")
            yield f"sqlite:///{home / 'arena.db'}"

    @contextmanager
    def empty(self, home: Path) -> Iterator[str]:
        """The address of a database without tables."""
        if self.postgres is not None:
            with self.postgres.database() as url:
                yield url
        else:
            home.mkdir(parents=True, exist_ok=True)
            yield f"sqlite:///{home / 'arena.db'}"

    def _sqlite(self) -> Path:
        from sqlalchemy import delete

        from arena_runner.server.store.database import Store
        from arena_runner.server.store.tables import MetaRow

        path = self.folder / "migrated.db"
        if not path.exists():
            store = Store.open(f"sqlite:///{path}")
            with store.write() as session:
                session.execute(delete(MetaRow))
            store.close()  # the last connection writes everything into the one file
        return path


@pytest.fixture(scope="session")
def databases(request, tmp_path_factory) -> Databases:
    """Databases of one kind; a test that uses this runs once per kind, as `on_both` says."""
    kind = getattr(request, "param", "sqlite")
    cluster_ = request.getfixturevalue("postgres") if kind == "postgresql" else None
    return Databases(kind, cluster_, tmp_path_factory.mktemp("databases"))


def on_both(metafunc: pytest.Metafunc) -> None:
    """For `pytest_generate_tests`: whoever uses `databases` runs on SQLite and on PostgreSQL."""
    if "databases" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("one_database")
        kinds = ["sqlite"] if alone else ["sqlite", "postgresql"]
        metafunc.parametrize("databases", kinds, indirect=True, scope="session")
