"""The tokens people make, list and revoke. A token's text is given out once; afterwards it has a name only."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_runner.server import auth
from arena_runner.server.auth import NewToken, Role, TokenKind
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.store.tables import TokenRow
from arena_runner.server.world import World

KINDS = {TokenKind.BEARER: "token", TokenKind.BROWSER: "browser", TokenKind.REFRESH: "login"}
"""What people call them."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One token as it may be shown."""

    id: str
    kind: str
    role: str
    name: str
    subject: str
    tier: str | None
    state: str
    """`valid`, `expired` or `revoked`; what a dead token has made is dead too"""
    created: float
    expires: float | None
    last_used: float | None


def create(
    world: World, role: Role, *, name: str = "", tier: str | None = None, lasts_s: float | None = None
) -> tuple[str, Listed]:
    """A new token: its text, which is not kept, and what is."""
    if tier is not None and role != Role.WORKER:
        raise RefusedError(422, "bad-request", f"a tier is for tokens with role worker, not {role}")
    if tier is not None and tier not in (known := [t.id for t in world.tiers.tiers]):
        raise RefusedError(422, "bad-request", f"tier {tier} is none of this server's: {', '.join(known)}")
    now, text = world.clock(), auth.new_text()
    expires = None if lasts_s is None else now + lasts_s
    token = NewToken(role, name or role, name, tier=tier, expires=expires)
    with world.store.write() as session:
        row = auth.store(session, text, token, now)
        return text, _listed(session, row, now)


def listing(world: World, *, dead: bool = False) -> tuple[Listed, ...]:
    """Tokens, browsers and logins, oldest first; those of the server's own workers are not among them."""
    now = world.clock()
    with world.store.read() as session:
        rows = session.scalars(select(TokenRow).where(TokenRow.run_id.is_(None)).order_by(TokenRow.created))
        shown = [_listed(session, row, now) for row in rows if row.kind != TokenKind.BEARER or not row.parent]
    return tuple(token for token in shown if dead or token.state == "valid")


def revoke(world: World, token_id: str) -> Listed:
    """End a token and all that was made from it, at once; a repeat changes nothing."""
    now = world.clock()
    with world.store.write() as session:
        row = session.scalar(select(TokenRow).where(TokenRow.id == token_id))
        if row is None:
            near = get_close_matches(token_id, session.scalars(select(TokenRow.id)).all(), n=1)
            hint = (
                f" (did you mean {near[0]}?)" if near else " (arena-runner token list shows those there are)"
            )
            raise not_found(f"token {token_id}{hint}")
        row.revoked = row.revoked or now
        return _listed(session, row, now)


def _listed(session: Session, row: TokenRow, now: float) -> Listed:
    state = "valid" if auth.alive(session, row, now) else "revoked"
    if row.revoked is None and row.expires is not None and row.expires <= now:
        state = "expired"
    kind = KINDS[TokenKind(row.kind)]
    return Listed(
        row.id,
        kind,
        row.role,
        row.name,
        row.subject,
        row.tier,
        state,
        row.created,
        row.expires,
        row.last_used,
    )
