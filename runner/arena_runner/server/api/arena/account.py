"""Who the caller is, what was spent, and the compute there is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from arena_runner.server.api.arena.door import PREFIX, Viewer
from arena_runner.server.api.arena.door import router as new_router
from arena_runner.server.api.door import TheWorld
from arena_runner.server.store.tables import RunStateRow

router = new_router("")


@router.get("/api/users/current")
def current(_world: TheWorld, caller: Viewer) -> dict[str, str]:
    """The token's owner; this server knows subjects and roles, no addresses."""
    return {"first_name": caller.subject, "last_name": "", "email": "", "role": caller.role}


@router.get("/api/users/credits")
def credits_spent(world: TheWorld, _caller: Viewer) -> dict[str, float]:
    """What finished work has cost, each segment at the price its tier had."""
    query = select(func.sum(RunStateRow.spent_credits), func.sum(RunStateRow.spent_s))
    with world.store.read() as session:
        spent, seconds = session.execute(query).one()
    return {"spent": round(spent or 0.0, 4), "worker_hours": round((seconds or 0.0) / 3600, 4)}


@router.get(PREFIX + "/resources/list")
def tiers(world: TheWorld, _caller: Viewer) -> dict[str, Any]:
    """The compute classes of this server."""
    return {
        "tiers": {
            tier.id: {
                "name": tier.id,
                "price_per_node_hour": tier.credits_per_node_hour,
                "num_cpus": tier.num_cpus,
                "ram_gb": tier.ram_gb,
                "gpu_type": tier.gpu_type,
                "num_gpus": tier.num_gpus,
            }
            for tier in world.tiers.tiers
        }
    }
