"""Workers that pull, the tokens of their claims, and budgets in credits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply. What earlier segments cost is not known; the runtime that their credits paid for stays their limit."""
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("registered", sa.Double(), nullable=False),
        sa.Column("seen", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id"),
    )
    op.create_table(
        "claims",
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("claimed", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("token_id"),
    )
    op.create_index("ix_claims_run_id", "claims", ["run_id"])
    op.add_column("runs", sa.Column("max_credits", sa.Double(), nullable=True))
    op.add_column("run_states", sa.Column("spent_credits", sa.Double(), nullable=False, server_default="0"))
    op.add_column("run_states", sa.Column("rate", sa.Double(), nullable=True))
    op.add_column("run_states", sa.Column("retries", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Undo."""
    for column in ("retries", "rate", "spent_credits"):
        op.drop_column("run_states", column)
    op.drop_column("runs", "max_credits")
    op.drop_table("claims")
    op.drop_table("workers")
