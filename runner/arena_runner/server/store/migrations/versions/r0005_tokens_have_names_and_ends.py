"""Tokens get a name, an end and a parent; those there are stay valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("tokens") as table:
        table.add_column(sa.Column("id", sa.String(), nullable=True))
        table.add_column(sa.Column("kind", sa.String(), nullable=False, server_default="bearer"))
        table.add_column(sa.Column("name", sa.String(), nullable=False, server_default=""))
        table.add_column(sa.Column("parent", sa.String(), nullable=True))
        table.add_column(sa.Column("tier", sa.String(), nullable=True))
        table.add_column(sa.Column("expires", sa.Double(), nullable=True))
        table.add_column(sa.Column("last_used", sa.Double(), nullable=True))
        table.add_column(sa.Column("revoked", sa.Double(), nullable=True))
    op.execute("UPDATE tokens SET id = 't_' || substr(hash, 1, 12)")
    with op.batch_alter_table("tokens") as table:
        table.alter_column("id", existing_type=sa.String(), nullable=False)
        table.alter_column("kind", existing_type=sa.String(), server_default=None)
        table.alter_column("name", existing_type=sa.String(), server_default=None)
        table.create_unique_constraint("uq_tokens_id", ["id"])
        table.create_index("ix_tokens_parent", ["parent"])


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("tokens") as table:
        table.drop_index("ix_tokens_parent")
        table.drop_constraint("uq_tokens_id", type_="unique")
        for column in ("revoked", "last_used", "expires", "tier", "parent", "name", "kind", "id"):
            table.drop_column(column)
