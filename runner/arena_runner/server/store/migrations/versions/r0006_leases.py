"""Leases of applies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "leases",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("stack", sa.String(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=True),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("run_url", sa.String(), nullable=True),
        sa.Column("ttl_s", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "stack"),
    )
    op.create_index("ix_leases_id", "leases", ["id"])


def downgrade() -> None:
    """Undo."""
    op.drop_table("leases")
