"""`/api/v1/audit`: who chose what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from arena_gitops.spec.audit import AliasChange
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Role
from arena_runner.server.services import audit

router = APIRouter(prefix="/api/v1", tags=["native"])


@router.get("/audit", dependencies=[caller(Role.VIEWER)])
def get_audit(
    world: TheWorld,
    model: str | None = None,
    alias: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> tuple[AliasChange, ...]:
    """Changes of aliases in MLflow, newest first."""
    with world.store.read() as session:
        return audit.entries(session, model, alias, limit)
