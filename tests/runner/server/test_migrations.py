"""From every release's database to this one's: its rows are all there, and the tables are the models'."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Float, Integer, MetaData, Table, func, insert, inspect, select, text

from arena_runner.server.store.database import MIGRATIONS, DatabaseError, Store
from arena_runner.server.store.schema import every_table
from arena_runner.server.store.tables import Base

SCRIPTS = ScriptDirectory(str(MIGRATIONS))
REVISIONS = [script.revision for script in SCRIPTS.walk_revisions()][::-1]
HEAD = REVISIONS[-1]
ROWS = (1, 2)


@pytest.fixture
def empty(databases, tmp_path):
    """A store on a database without tables."""
    with databases.empty(tmp_path / "home") as url, closing(Store(url)) as store:
        yield store


def tables(store):
    """The tables as the database has them, whatever the models say."""
    found = MetaData()
    found.reflect(store.engine)
    return [table for table in found.sorted_tables if table.name not in {"alembic_version", "meta"}]


def value(column, n):
    """Something of the column's type; what refers to another column has that one's value."""
    for key in column.foreign_keys:
        return value(key.column, n)
    kind = column.type
    if isinstance(kind, Boolean):
        return n == 1
    if isinstance(kind, Integer):
        return n
    if isinstance(kind, Float):
        return n + 0.5
    return {"n": n, "text": "é"} if "JSON" in type(kind).__name__ else f"{n}-{column.name}"


def fill(store):
    """Rows in every table."""
    with store.engine.begin() as connection:
        for table in tables(store):
            for n in ROWS:
                connection.execute(insert(table), {c.name: value(c, n) for c in table.columns})


def rows(store, table):
    with store.engine.connect() as connection:
        key = list(table.primary_key.columns)
        return [dict(row) for row in connection.execute(select(table).order_by(*key)).mappings()]


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_row_of_an_earlier_release_survives_and_the_models_read_it(empty, revision):
    empty.migrate(revision)
    fill(empty)
    before = {table.name: rows(empty, table) for table in tables(empty)}
    lineage = empty.lineage()
    empty.migrate()
    after = {table.name: rows(empty, table) for table in tables(empty)}
    for name, kept in before.items():
        assert [{column: row[column] for column in kept[0]} for row in after[name]] == kept
    assert empty.lineage() == lineage
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, every_table()) == []
    with empty.read() as session:
        for mapper in Base.registry.mappers:
            name = mapper.local_table.name
            found = len(list(session.scalars(select(mapper.class_))))
            assert found == (1 if name == "meta" else len(before.get(name, ())))


def test_an_old_database_counts_on_after_its_last_row(empty):
    """New rows of a table with numbers of its own do not meet those that were there."""
    empty.migrate("0001")
    with empty.engine.begin() as connection:
        for table in tables(empty):
            for n in ROWS:
                own = [c for c in table.columns if c.name == "id" and isinstance(c.type, Integer)]
                connection.execute(
                    insert(table), {c.name: value(c, n) for c in table.columns if c not in own}
                )
    empty.migrate()
    events = Table("events", MetaData(), autoload_with=empty.engine)
    new = {c.name: value(c, 3) for c in events.columns if c.name not in {"id", "run_id"}} | {"run_id": "1-id"}
    with empty.engine.begin() as connection:
        connection.execute(insert(events), new)
        assert connection.scalar(select(func.count()).select_from(events)) == len(ROWS) + 1


def test_migrations_can_be_taken_back_one_by_one(empty):
    empty.migrate()
    fill(empty)
    for revision in REVISIONS[-2::-1]:
        empty.downgrade(revision)
    assert len(rows(empty, next(t for t in tables(empty) if t.name == "runs"))) == len(ROWS)
    empty.migrate()


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty, monkeypatch):
    empty.migrate("0001")
    fill(empty)
    before = {table.name: rows(empty, table) for table in tables(empty)}
    monkeypatch.setattr("alembic.op.create_table", lambda *_args, **_more: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        empty.migrate()
    monkeypatch.undo()
    assert {table.name: rows(empty, table) for table in tables(empty)} == before
    assert "model" not in {c["name"] for c in inspect(empty.engine).get_columns("run_states")}
    empty.migrate()


def test_a_database_of_a_later_release_is_one_clear_error(empty):
    empty.migrate()
    with empty.engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    with pytest.raises(DatabaseError) as refused:
        empty.migrate()
    assert "is at revision 9999, which a newer arena-runner has made" in str(refused.value)
    assert f"this one knows {HEAD} and earlier" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_server_on_a_database_of_a_later_release_does_not_start_and_changes_nothing(make_server):
    server = make_server()
    server.rows("select 1")
    store = Store(server.database)
    with store.engine.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    store.close()
    command = [sys.executable, "-m", "arena_runner.cli", "server", "--home", str(server.home)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=server.environment()
    )
    assert ended.returncode == 1
    assert len([line for line in ended.stderr.splitlines() if line.startswith("error: database")]) == 1
    assert "Traceback" not in ended.stderr
    assert server.rows("select count(*) from meta") == [(0,)]


def test_two_servers_that_start_at_once_migrate_once(empty):
    """Two processes, as two homes on one PostgreSQL would be; each finds the tables whole."""
    empty.migrate("0001")
    fill(empty)
    program = (
        "import sys, json; from arena_runner.server.store.database import Store; sys.stdin.readline();"
        "s = Store.open(sys.argv[1]); print(json.dumps(s.lineage())); s.close()"
    )
    url = empty.url.render_as_string(hide_password=False)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = [None, None]

    def go(place):
        said[place] = both[place].communicate(b"go\n", timeout=60)

    threads = [threading.Thread(target=go, args=[n]) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.returncode for p in both] == [0, 0], said
    assert {json.loads(out) for out, _ in said} == {empty.lineage()}


def test_a_migration_killed_in_the_middle_is_as_if_it_had_not_begun(empty):
    empty.migrate("0001")
    fill(empty)
    program = (
        "import sys, time; from alembic import op; from arena_runner.server.store.database import Store;"
        "op.create_table = lambda *a, **k: (print('there', flush=True), time.sleep(60));"
        "Store.open(sys.argv[1])"
    )
    url = empty.url.render_as_string(hide_password=False)
    process = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"there\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    assert "model" not in {c["name"] for c in inspect(empty.engine).get_columns("run_states")}
    empty.migrate()
    assert time.monotonic() - began < 20


def test_a_migration_may_make_a_table_anew_that_others_refer_to(empty):
    """SQLite changes a column by making the table anew; the rows that refer to it must not hold that up."""
    empty.migrate()
    fill(empty)
    before = {table.name: rows(empty, table) for table in tables(empty)}
    with empty.migrating() as connection:
        operations = Operations(MigrationContext.configure(connection))
        with operations.batch_alter_table("runs", recreate="auto") as table:
            table.alter_column("tier", nullable=False)
    assert {table.name: rows(empty, table) for table in tables(empty)} == before
