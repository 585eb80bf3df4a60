"""Device logins, and secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "device_logins",
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("user_code", sa.String(), nullable=False),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("asked_from", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("interval_s", sa.Double(), nullable=False),
        sa.Column("polled", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("hash"),
        sa.UniqueConstraint("user_code"),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    """Undo."""
    op.drop_table("secrets")
    op.drop_table("device_logins")
