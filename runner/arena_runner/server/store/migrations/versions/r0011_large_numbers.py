"""Steps and bytes beyond 2^31; SQLite has always kept them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = (
    ("runs", "max_steps"),
    ("run_states", "job_max_steps"),
    ("checkpoints", "step"),
    ("checkpoints", "size_bytes"),
    ("revisions", "step"),
    ("series", "step"),
    ("registrations", "step"),
)


def upgrade() -> None:
    """Apply."""
    _retype(sa.BigInteger())


def downgrade() -> None:
    """Undo; PostgreSQL refuses while there is a number that does not fit."""
    _retype(sa.Integer())


def _retype(to: sa.types.TypeEngine[int]) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, column in COLUMNS:
            op.alter_column(table, column, type_=to)
