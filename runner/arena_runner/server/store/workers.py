"""Tables of the workers that pull: who is there, and which claim gave which token."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base


class WorkerRow(Base):
    """A worker of another machine that has introduced itself."""

    __tablename__ = "workers"
    worker_id: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[str]
    """whose word counts for this worker"""
    hostname: Mapped[str]
    tier: Mapped[str]
    version: Mapped[str]
    registered: Mapped[float]
    seen: Mapped[float]
    """its last question; while it works the heartbeat of its run is newer"""


class ClaimRow(Base):
    """The token that one claim handed out; it is good for as long as the run's fence is this one."""

    __tablename__ = "claims"
    token_id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(index=True)
    segment: Mapped[int]
    fence: Mapped[int]
    worker_id: Mapped[str]
    claimed: Mapped[float]
