"""What the runs of a stack have cost, by the tiers' prices and the time their workers took."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.wire import Owner
from arena_runner.server.settings import resolve_tier
from arena_runner.server.store.tables import ResourceRow, RunRow, RunStateRow
from arena_runner.server.world import World


def this_month(session: Session, world: World, owner: Owner) -> float:
    """Credits of the runs that were made since the month began (UTC); segments that go on are not in it yet."""
    query = (
        select(RunRow.tier, RunRow.spec, RunStateRow.spent_s)
        .join(RunStateRow)
        .join(
            ResourceRow,
            (ResourceRow.namespace == RunRow.namespace)
            & (ResourceRow.name == RunRow.experiment)
            & (ResourceRow.kind == "experiment"),
        )
        .where(RunRow.namespace == owner.namespace, ResourceRow.stack == owner.stack)
        .where(RunRow.created >= _month_start(world.clock()), RunStateRow.spent_s > 0)
    )
    spent = 0.0
    for name, spec, seconds in session.execute(query):
        tier, _ = resolve_tier(name, world.tiers)
        spent += seconds / 3600 * tier.credits_per_node_hour * int(spec.get("num_nodes") or 1)
    return round(spent, 4)


def _month_start(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC)
    return datetime(today.year, today.month, 1, tzinfo=UTC).timestamp()
