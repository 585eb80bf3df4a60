"""The record of alias changes: asked, settled, and those that somebody made past us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.audit import AliasChange
from arena_runner import logs
from arena_runner.server.auth import Identity
from arena_runner.server.registry import BEST, SERVING
from arena_runner.server.store.audit import AliasChangeRow
from arena_runner.server.world import World

SERVER = "server"
"""Who keeps `best` and `serving`."""

Alias = tuple[str, str]
"""model, alias"""


@dataclass(frozen=True, slots=True)
class Wish:
    """An alias to be moved; `new` None: removed."""

    model: str
    alias: str
    old: str | None
    new: str | None


def ask(world: World, wish: Wish, caller: Identity) -> int:
    """Record what somebody is about to do; the number by which it is settled."""
    with world.store.write() as session:
        row = _row(wish, world.clock(), caller.subject, "asked")
        row.token_id, row.request_id = caller.token_id, logs.field("request_id")
        session.add(row)
        session.flush()
        return row.id


def settle(world: World, number: int, *, done: bool) -> None:
    """Record what MLflow said."""
    with world.store.write() as session:
        session.get_one(AliasChangeRow, number).outcome = "done" if done else "refused"


def compare(session: Session, before: Mapping[Alias, str], now: Mapping[Alias, str], at: float) -> None:
    """Record the differences between two looks at MLflow that nobody has told us of."""
    for model, alias in sorted(before.keys() | now.keys()):
        wish = Wish(model, alias, before.get((model, alias)), now.get((model, alias)))
        if wish.old == wish.new:
            continue
        known = latest(session, model, alias)
        if known is None or known.new != wish.new:
            session.add(_row(wish, at, SERVER if alias in {BEST, SERVING} else None, "done"))


def latest(session: Session, model: str, alias: str) -> AliasChangeRow | None:
    """The newest change of an alias that was made, or may have been."""
    query = select(AliasChangeRow).where(AliasChangeRow.model == model, AliasChangeRow.alias == alias)
    made = query.where(AliasChangeRow.outcome != "refused").order_by(AliasChangeRow.id.desc())
    return session.scalar(made.limit(1))


def entries(session: Session, model: str | None, alias: str | None, limit: int) -> tuple[AliasChange, ...]:
    """Changes, newest first."""
    query = select(AliasChangeRow).order_by(AliasChangeRow.id.desc()).limit(limit)
    if model is not None:
        query = query.where(AliasChangeRow.model == model)
    if alias is not None:
        query = query.where(AliasChangeRow.alias == alias)
    names = list(AliasChange.model_fields)
    return tuple(
        AliasChange.model_validate({name: getattr(row, name) for name in names})
        for row in session.scalars(query)
    )


def _row(wish: Wish, at: float, by: str | None, outcome: str) -> AliasChangeRow:
    return AliasChangeRow(
        at=at, model=wish.model, alias=wish.alias, old=wish.old, new=wish.new, by=by, outcome=outcome
    )
