"""What the runs of a stack have cost, each segment at the price its tier had."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from arena_gitops.spec.wire import Owner
from arena_runner.server.store.tables import ResourceRow, RunRow, RunStateRow
from arena_runner.server.world import World


def this_month(session: Session, world: World, owner: Owner) -> float:
    """Credits of the runs that were made since the month began (UTC); segments that go on are not in it yet."""
    query = (
        select(func.sum(RunStateRow.spent_credits))
        .join(RunRow, RunRow.id == RunStateRow.run_id)
        .join(
            ResourceRow,
            (ResourceRow.namespace == RunRow.namespace)
            & (ResourceRow.name == RunRow.experiment)
            & (ResourceRow.kind == "experiment"),
        )
        .where(RunRow.namespace == owner.namespace, ResourceRow.stack == owner.stack)
        .where(RunRow.created >= _month_start(world.clock()))
    )
    return round(session.scalar(query) or 0.0, 4)


def _month_start(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC)
    return datetime(today.year, today.month, 1, tzinfo=UTC).timestamp()
