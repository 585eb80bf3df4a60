"""Alembic's entry: runs on the connection that `Store.migrate` passes in."""

from __future__ import annotations

from alembic import context

from arena_runner.server.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter most things in place
)
with context.begin_transaction():
    context.run_migrations()
