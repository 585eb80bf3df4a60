"""The request that made a run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("runs", sa.Column("request_id", sa.String(), nullable=True))


def downgrade() -> None:
    """Undo."""
    op.drop_column("runs", "request_id")
