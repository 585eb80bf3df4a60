"""The base model of a run, as its first worker resolved it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("run_states", sa.Column("model", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Undo."""
    op.drop_column("run_states", "model")
