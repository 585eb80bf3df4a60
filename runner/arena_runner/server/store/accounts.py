"""Tables of accounts beside the tokens themselves."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from arena_runner.server.store.tables import Base


class DeviceLoginRow(Base):
    """A program that waits for a person to let it in, by the hash of the code it polls with."""

    __tablename__ = "device_logins"
    hash: Mapped[str] = mapped_column(primary_key=True)
    user_code: Mapped[str] = mapped_column(unique=True)
    """what the person compares or types"""
    client: Mapped[str]
    asked_from: Mapped[str]
    """network address of the program"""
    state: Mapped[str]
    """`pending`, `approved`, `denied`; the row goes when its tokens have been fetched"""
    role: Mapped[str | None]
    subject: Mapped[str | None]
    parent: Mapped[str | None]
    """id of the token of whoever approved it"""
    created: Mapped[float]
    expires: Mapped[float]
    interval_s: Mapped[float]
    polled: Mapped[float | None]


class SecretRow(Base):
    """A value that rewards may ask for, encrypted with the server's key."""

    __tablename__ = "secrets"
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    """a Fernet token"""
    by: Mapped[str]
    created: Mapped[float]
    updated: Mapped[float]
    version: Mapped[int]
    """of the value: another one has a number that no secret of this server has had"""
