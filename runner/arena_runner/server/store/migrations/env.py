"""Alembic's entry: runs on the connection that `Store.migrate` passes in."""

from __future__ import annotations

from alembic import context

from arena_runner.server.store.schema import every_table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=every_table(),
    render_as_batch=True,  # SQLite cannot alter most things in place
)
with context.begin_transaction():
    context.run_migrations()
