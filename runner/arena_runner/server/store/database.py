"""Open the database, migrate it, hand out sessions.

Writers take turns on either database: a writing session begins with SQLite's write lock (`BEGIN IMMEDIATE`), or
with one advisory lock of the PostgreSQL database. So what a writer has read is still true when it commits, and
claims, versions and positions need no locks of their own. A reading session sees one moment and cannot write.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from arena_gitops.errors import ArenaError, LockedError
from arena_runner.server.store.address import address, shown
from arena_runner.server.store.tables import MetaRow

MIGRATIONS = Path(__file__).parent / "migrations"
LINEAGE = "lineage"
CHANGES = "arena.changes"

WRITING, SERVING = 0x6172656E61, 0x6172656E62
"""Advisory locks of PostgreSQL: whoever writes, and the one server that uses the database."""
LOCK_WAIT_S = 30
"""How long a writer waits for its turn, on both databases."""
SERVER_WAIT_S = 25.0
"""How long a server waits for a predecessor that is stopping."""


class DatabaseError(ArenaError):
    """The database cannot be used at all: it does not answer, refuses us, or is of a later release."""


class Store:
    """One database and its sessions."""

    def __init__(self, url: str | URL) -> None:
        self.url = address(url) if isinstance(url, str) else url
        self.engine = _engine(self.url)
        self._writing = self.engine.execution_options(begin="IMMEDIATE")
        self._reading = self.engine
        self.commits = 0
        """writes that have ended and changed something; another count means that what was read may be old"""
        if self.is_postgresql:
            self._reading = self.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @classmethod
    def open(cls, url: str | URL) -> Store:
        """Open and bring the tables up to date."""
        store = cls(url)
        store.migrate()
        return store

    @property
    def is_postgresql(self) -> bool:
        """Whether this is PostgreSQL and not SQLite."""
        return self.engine.dialect.name == "postgresql"

    def migrate(self, revision: str = "head") -> None:
        """Run every migration that is missing, then make sure the database has an identity.

        All of it is one writer's transaction: two servers that start at once migrate one after the other, and
        a migration that fails leaves the database as it was.

        Raises:
            DatabaseError: The database cannot be opened, or this release does not know its revision.
        """
        with self.migrating() as connection:
            config = _alembic(connection)
            self._check_known(connection, ScriptDirectory.from_config(config))
            command.upgrade(config, revision)
            if connection.scalar(select(MetaRow.value).where(MetaRow.key == LINEAGE)) is None:
                connection.execute(insert(MetaRow).values(key=LINEAGE, value=uuid.uuid4().hex))

    def downgrade(self, revision: str) -> None:
        """Back to an earlier release's tables; what only later ones have is lost."""
        with self.migrating() as connection:
            command.downgrade(_alembic(connection), revision)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """One writer's transaction in which tables may be made anew: references are checked at its end."""
        engine = self._writing.execution_options(references="LATER")
        with self.connected(engine) as connection:
            try:
                with connection.begin():
                    yield connection
                    _check_references(connection)
            finally:
                connection.invalidate()  # its checks of references are off

    @contextmanager
    def connected(self, engine: Engine | None = None) -> Iterator[Connection]:
        """A connection; the first thing a start needs, so a failure is said with the database's own words."""
        try:
            connection = (engine or self.engine).connect()
        except DBAPIError as problem:
            why = " ".join(str(problem.orig).split())
            raise DatabaseError(f"database {shown(self.url)} cannot be opened: {why}") from problem
        with connection:
            yield connection

    def _check_known(self, connection: Connection, scripts: ScriptDirectory) -> None:
        known = {script.revision for script in scripts.walk_revisions()}
        strange = set(MigrationContext.configure(connection).get_current_heads()) - known
        if strange:
            message = (
                f"database {shown(self.url)} is at revision {', '.join(sorted(strange))}, which a newer"
                f" arena-runner has made; this one knows {', '.join(scripts.get_heads())} and earlier."
                " Install that arena-runner again, or restore a backup made before it"
            )
            raise DatabaseError(message)

    def lineage(self) -> str:
        """Identity of this database; another one is another world."""
        with self.read() as session:
            row = session.get(MetaRow, LINEAGE)
        if row is None:
            raise LookupError("the database has no lineage: it was opened without migrating")
        return row.value

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that changes nothing; objects stay usable after it closes."""
        with Session(self._reading, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at its end, or leaves nothing behind."""
        changes: list[str] = []
        try:
            with Session(self._writing, expire_on_commit=False) as session, session.begin():
                session.connection().info[CHANGES] = changes  # this writer's own: the next one brings another
                yield session
        finally:
            if changes:  # controllers look again and again, and mostly find nothing to do
                self.commits += 1  # of many threads: some may count as one, and none goes unnoticed

    @contextmanager
    def only_server(self, wait_s: float = SERVER_WAIT_S) -> Iterator[None]:
        """Keep a second server away from a PostgreSQL database; for a file the lock of the home does it."""
        if not self.is_postgresql:
            yield
            return
        with self.connected(self.engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
            deadline = time.monotonic() + wait_s
            while not connection.scalar(text("select pg_try_advisory_lock(:key)"), {"key": SERVING}):
                if time.monotonic() > deadline:
                    raise LockedError(f"another server uses database {shown(self.url)}; stop it first")
                time.sleep(0.2)
            try:
                yield
            finally:
                connection.invalidate()  # closed, not given back: it takes the lock with it

    def close(self) -> None:
        """Give back every connection."""
        self.engine.dispose()


def _engine(url: URL) -> Engine:
    # One connection each for the API's threads and the controllers.
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, pool_size=20, max_overflow=100)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        engine = create_engine(
            url.update_query_dict({"connect_timeout": "10"} | dict(url.query)),
            pool_size=10,
            max_overflow=50,
            pool_pre_ping=True,  # the database may have been restarted
            connect_args={"options": f"-c lock_timeout={LOCK_WAIT_S}s"},
        )
        event.listen(engine, "begin", _begin_postgresql)
    event.listen(engine, "after_cursor_execute", _note_change)
    return engine


def _note_change(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
    """Tell the writer whose connection this is that it has changed something."""
    changes = connection.info.get(CHANGES)
    if changes is not None and not statement.lstrip()[:6].upper().startswith("SELECT"):
        changes.append(statement[:20])


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions on its own
    wait = f"busy_timeout={LOCK_WAIT_S * 1000}"  # first: the others may have to wait for another process
    for pragma in (wait, "journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    mode = options.get("begin", "DEFERRED")
    if options.get("references") == "LATER":  # can be said outside of a transaction only
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    connection.exec_driver_sql(f"BEGIN {mode}")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get("begin") == "IMMEDIATE":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITING})")


def _alembic(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def _check_references(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        if lost:
            raise DatabaseError(
                f"a migration would have lost what {len(lost)} rows refer to; nothing was changed"
            )
