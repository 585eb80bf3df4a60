"""`/api/cli/v1` and `/api/users`: the protocol of the published client, translated to this server's services.

Every module holds one group of the client's commands. To add a route: write it in its group's module; the group's
router is included below.
"""

from __future__ import annotations

from fastapi import APIRouter

from arena_runner.server.api.arena import (
    account,
    datasets,
    deployments,
    environments,
    experiments,
    models,
    projects,
    run_spec,
    submit,
)

routers: tuple[APIRouter, ...] = (
    account.router,
    models.router,
    projects.router,
    datasets.router,
    environments.router,
    submit.router,
    run_spec.router,
    experiments.router,
    deployments.router,
)
