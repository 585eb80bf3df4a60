"""Where a revision is served, when that is not as the server does by itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("revisions", sa.Column("place", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Undo."""
    op.drop_column("revisions", "place")
