"""The HTTP face of a `World`. To add an API: write a router in `api/` and include it here."""

from __future__ import annotations

from fastapi import FastAPI

from arena_runner.server.api import (
    arena,
    audit,
    blobs,
    checks,
    dashboard,
    door,
    health,
    inference,
    leases,
    native,
    openai,
    sessions,
    workers,
)
from arena_runner.server.api.described import Described
from arena_runner.server.api.device import router as device_page
from arena_runner.server.api.login import router as login_pages
from arena_runner.server.api.models import router as base_models
from arena_runner.server.api.oidc import router as device_login
from arena_runner.server.api.secrets import router as secret_names
from arena_runner.server.api.splits import router as splits
from arena_runner.server.api.wheels import router as wheels
from arena_runner.server.metrics import Meters
from arena_runner.server.world import World


def create_app(world: World | None) -> FastAPI:
    """An app whose routes work on `world`; without one it can only be described."""
    app = Described()
    app.state.world = world
    app.state.meters = Meters(world)
    door.install(app)
    routers = (health.router, native.router, blobs.router, workers.router, checks.router, leases.router)
    for router in (
        *routers,
        audit.router,
        base_models,
        splits,
        wheels,
        *arena.routers,
        inference.router,
        sessions.router,
        openai.router,
    ):
        app.include_router(router)
    for router in (login_pages, device_page, device_login, dashboard.router):
        app.include_router(router)
    app.include_router(secret_names)
    return app
