"""Alembic migrations: one file per change of the tables, applied at every start."""
