"""Tables and migrations say the same, twice is the same as once, and a failed write leaves nothing."""

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, inspect

from arena_gitops.spec.resource import Address
from arena_gitops.spec.wire import Owner
from arena_runner.server.refusals import RefusedError
from arena_runner.server.services import documents, resources
from arena_runner.server.store.database import Store
from arena_runner.server.store.schema import every_table
from arena_runner.server.store.tables import MetaRow, RunRow


def test_the_migrations_make_exactly_the_tables(world):
    with world.store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, every_table()) == []


def test_what_was_stored_by_the_first_version_survives_every_migration(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'old.db'}")
    store.migrate("0001")
    with store.write() as session:
        session.add(MetaRow(key="old", value="kept"))
    store.migrate()
    with store.read() as session:
        assert session.get_one(MetaRow, "old").value == "kept"
    store.close()


def test_opening_again_keeps_the_lineage(world):
    again = Store.open(world.store.url)
    assert again.lineage() == world.store.lineage()
    again.close()


def test_two_databases_are_two_worlds(world, databases, tmp_path):
    with databases.world(tmp_path / "other") as url:
        other = Store.open(url)
        assert other.lineage() != world.store.lineage()
        other.close()


@pytest.mark.one_database
def test_the_database_writes_ahead(world):
    with world.store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    assert "meta" in inspect(world.store.engine).get_table_names()


def test_a_write_that_fails_leaves_nothing(world):
    def write():
        with world.store.write() as session:
            session.add(MetaRow(key="half", value="done"))
            session.flush()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write()
    with world.store.read() as session:
        assert session.get(MetaRow, "half") is None


def test_writers_wait_for_each_other(world):
    with world.store.write() as session:
        session.add(MetaRow(key="count", value="0"))

    def count():
        for _ in range(25):
            with world.store.write() as session:
                row = session.get_one(MetaRow, "count")
                row.value = str(int(row.value) + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with world.store.read() as session:
        assert session.get_one(MetaRow, "count").value == "100"


def test_state_asks_as_many_queries_for_thirty_resources_as_for_three(world, build):
    def queries():
        asked = []
        with world.store.read() as session:
            listener = lambda *args: asked.append(args[2])  # noqa: E731
            event.listen(world.store.engine, "before_cursor_execute", listener)
            documents.state(session, world, Owner(stack="team"))
            event.remove(world.store.engine, "before_cursor_execute", listener)
        return len([statement for statement in asked if not statement.startswith("BEGIN")])

    def fill(numbers):
        for n in numbers:
            body = build.experiment(f"e{n}", seed=n)
            resources.put(world, resources.Put(Address("experiment", f"e{n}"), body, None))
            body = build.deployment(f"e{n}")
            resources.put(world, resources.Put(Address("deployment", f"e{n}"), body, None))

    fill(range(3))
    few = queries()
    fill(range(3, 30))
    assert queries() == few


@pytest.mark.parametrize("number", [2**31, 2**62])
def test_large_numbers_are_kept(world, build, number):
    """Steps and bytes outgrow 32 bits, which is all that PostgreSQL's INTEGER has."""
    put = resources.Put(Address("experiment", "exp"), build.experiment(steps=number), None)
    run_id = resources.put(world, put).run.run_id
    with world.store.read() as session:
        assert session.get_one(RunRow, run_id).max_steps == number


def test_a_number_no_database_can_keep_is_refused(world, build):
    put = resources.Put(Address("experiment", "exp"), build.experiment(steps=2**63), None)
    with pytest.raises(RefusedError, match="max_steps must be a positive number below"):
        resources.put(world, put)
