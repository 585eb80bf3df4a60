"""Open the database, migrate it, hand out sessions.

A writing session takes SQLite's write lock at its start (`BEGIN IMMEDIATE`): two writers wait for each other
instead of failing half way. PostgreSQL needs no such help.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.orm import Session

from arena_runner.server.store import environments as _environments  # noqa: F401  # its table belongs to the metadata
from arena_runner.server.store import imports as _imports  # noqa: F401  # its table belongs to the metadata
from arena_runner.server.store.tables import MetaRow

MIGRATIONS = Path(__file__).parent / "migrations"
LINEAGE = "lineage"


class Store:
    """One database and its sessions."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._writing = self.engine.execution_options(begin="IMMEDIATE")

    @classmethod
    def open(cls, url: str) -> Store:
        """Open and bring the tables up to date."""
        store = cls(url)
        store.migrate()
        return store

    def migrate(self, revision: str = "head") -> None:
        """Run every migration that is missing, then make sure the database has an identity."""
        with self.engine.connect() as connection:
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            connection.commit()
        with self.write() as session:
            if session.get(MetaRow, LINEAGE) is None:
                session.add(MetaRow(key=LINEAGE, value=uuid.uuid4().hex))

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
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at its end, or leaves nothing behind."""
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Give back every connection."""
        self.engine.dispose()


def _engine(url: str) -> Engine:
    engine = create_engine(
        url, pool_size=20, max_overflow=100
    )  # one each for the API's threads and the controllers
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions on its own
    for pragma in ("journal_mode=WAL", "busy_timeout=30000", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")
