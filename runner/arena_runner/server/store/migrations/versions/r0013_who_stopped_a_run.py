"""Who stopped a run, where a person did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("runs", sa.Column("stopped_by", sa.String(), nullable=True))


def downgrade() -> None:
    """Undo."""
    op.drop_column("runs", "stopped_by")
