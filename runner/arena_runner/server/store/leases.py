"""The table of leases: one row per stack and namespace, for ever, because its fence must only rise."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base


class LeaseRow(Base):
    """Who may change a stack now; nobody where `id` is None."""

    __tablename__ = "leases"
    namespace: Mapped[str] = mapped_column(primary_key=True)
    stack: Mapped[str] = mapped_column(primary_key=True)
    fence: Mapped[int]
    """of the newest lease, also when it has ended"""
    id: Mapped[str | None] = mapped_column(index=True)
    holder: Mapped[str]
    operation: Mapped[str]
    run_url: Mapped[str | None]
    ttl_s: Mapped[float]
    created: Mapped[float]
    expires: Mapped[float]
