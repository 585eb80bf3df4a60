"""`/api/v1/secrets`: values go in, names come out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from arena_gitops.spec.secret import SecretInfo, SecretValue
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Identity, Role
from arena_runner.server.services import secrets

router = APIRouter(prefix="/api/v1/secrets", tags=["secrets"])

Editor = Annotated[Identity, caller(Role.EDITOR)]


@router.get("", dependencies=[caller(Role.VIEWER)])
def listing(world: TheWorld) -> tuple[SecretInfo, ...]:
    """Names, and who stored them when."""
    return secrets.listing(world)


@router.put("/{name}")
def put(world: TheWorld, editor: Editor, name: str, body: SecretValue) -> SecretInfo:
    """Store a value."""
    return secrets.put(world, name, body.value, editor.subject)


@router.delete("/{name}", status_code=204)
def remove(world: TheWorld, _editor: Editor, name: str) -> Response:
    """Forget a value."""
    secrets.remove(world, name)
    return Response(status_code=204)
