"""Conversations with a deployment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "chat_sessions",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("deployment", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "deployment", "subject", "session"),
    )


def downgrade() -> None:
    """Undo."""
    op.drop_table("chat_sessions")
