"""Secrets of a server over the wire: a value goes in and never comes out again; a list has names only.

| call | request | answer |
|---|---|---|
| `GET /api/v1/secrets` | | list of `SecretInfo` |
| `PUT /api/v1/secrets/{name}` | `SecretValue` | `SecretInfo` |
| `DELETE /api/v1/secrets/{name}` | | 204 |
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from arena_gitops.spec.resource import Frozen

LONGEST = 64 * 1024


class SecretValue(Frozen):
    """What is to be kept."""

    value: str = Field(min_length=1, max_length=LONGEST, repr=False)


class SecretInfo(Frozen):
    """What may be told of a secret."""

    name: str
    by: str
    """who stored it last"""
    created: float
    updated: float
    version: int = 1
    """another value has another number; plans compare it, never the value"""
    readable: bool = True
    """False: it was stored with another key than the server has now, and must be set again"""


def lacking(names: Sequence[str]) -> str:
    """What to say when a reward names secrets that have no value on the server."""
    orders = ", ".join(f"arena secrets set {name}" for name in names)
    return f"the reward names secrets that this server does not have: {', '.join(names)}; use {orders}"
