"""What is remembered of people's choices: who set which alias when, from what to what."""

from __future__ import annotations

from typing import Literal

from arena_gitops.spec.resource import Frozen


class AliasChange(Frozen):
    """One change of an alias of a registered model."""

    at: float
    model: str
    alias: str
    old: str | None
    """the version it pointed to before; None: there was no such alias"""
    new: str | None
    """None: the alias was removed"""
    by: str | None
    """None: it was changed in MLflow itself, past the server"""
    request_id: str | None = None
    outcome: Literal["asked", "done", "refused"]
    """`asked`: MLflow's answer was never heard"""
