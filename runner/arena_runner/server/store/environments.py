"""Versions of environments that commands made, by the names people gave them."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base, Json


class EnvironmentVersionRow(Base):
    """One named version: its files by digest, and what is known of it."""

    __tablename__ = "environment_versions"
    namespace: Mapped[str] = mapped_column(primary_key=True)
    environment: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(primary_key=True)
    """`v1`, or whatever its maker calls it"""
    position: Mapped[int]
    """counts up within an environment; the latest version has the highest"""
    spec: Mapped[Json]
    """an `EnvironmentInput`"""
    description: Mapped[str]
    language: Mapped[bool]
    """made for language models"""
    validated: Mapped[bool]
    profiled: Mapped[bool]
    report: Mapped[Json]
    """what its last checks have measured"""
    created: Mapped[float]
    updated: Mapped[float]
