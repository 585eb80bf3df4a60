"""What machines ask: does the process live, can it take work, and its figures."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from arena_gitops.spec.resource import Frozen
from arena_runner.server import readiness
from arena_runner.server.api.door import TheWorld, caller
from arena_runner.server.auth import Role
from arena_runner.server.metrics import Meters
from arena_runner.server.readiness import Readiness

router = APIRouter(tags=["health"])


class Alive(Frozen):
    """The answer of `/healthz`."""

    ok: bool = True
    draining: bool


@router.get("/healthz")
def healthz(world: TheWorld) -> Alive:
    """The process answers."""
    return Alive(draining=world.draining.is_set())


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
def readyz(world: TheWorld) -> Response:
    """Whether work can be taken, and everything that is missing; 503 when it cannot. Asks for no token."""
    found = readiness.look(world)
    return JSONResponse(found.model_dump(mode="json"), status_code=200 if found.ok else 503)


@router.get(
    "/metrics",
    dependencies=[caller(Role.VIEWER)],
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_class=Response,
)
def metrics(request: Request) -> Response:
    """Figures for Prometheus; a token with role viewer opens them."""
    meters = request.app.state.meters
    assert isinstance(meters, Meters)
    return Response(meters.text(), media_type=CONTENT_TYPE_LATEST)
