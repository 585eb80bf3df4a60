"""How often a secret has been given another value."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("secrets", sa.Column("version", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    """Undo."""
    op.drop_column("secrets", "version")
