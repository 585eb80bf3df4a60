"""Who chose what: every change of an alias of a registered model."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base


class AliasChangeRow(Base):
    """One change. It is written before MLflow is asked, so that no change goes unrecorded."""

    __tablename__ = "alias_changes"
    __table_args__ = (Index("ix_alias_changes", "model", "alias", "id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    model: Mapped[str]
    alias: Mapped[str]
    old: Mapped[str | None]
    """the version it pointed to; None: there was no such alias"""
    new: Mapped[str | None]
    """None: the alias was removed"""
    by: Mapped[str | None]
    """None: it was changed in MLflow itself, past this server"""
    token_id: Mapped[str | None]
    request_id: Mapped[str | None]
    outcome: Mapped[str]
    """`asked`: MLflow's answer was never heard; `done`; `refused`"""
