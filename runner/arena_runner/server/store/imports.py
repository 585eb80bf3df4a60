"""Rows of the hub on their way into this server's blobs: one row for each dataset that a command took from there."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base, Json


class ImportRow(Base):
    """What was asked for, how it stands, and the blob it became."""

    __tablename__ = "dataset_imports"
    namespace: Mapped[str] = mapped_column(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    hub: Mapped[Json]
    """id, config, split, revision as asked for"""
    state: Mapped[str]
    """`pending`, `ready` or `failed`"""
    message: Mapped[str]
    """what the check of the rows said, or why there are none"""
    revision: Mapped[str | None]
    """the commit of the hub that the rows are of"""
    digest: Mapped[str | None]
    format: Mapped[str | None]
    created: Mapped[float]
    updated: Mapped[float]
