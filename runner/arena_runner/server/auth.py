"""Tokens, stored by hash, and the roles they carry.

`viewer < editor < admin`; `worker` and `inference` stand beside them and open only their own doors. A worker's token
may be bound to one run. A token made from another (a browser's session, what a device login hands out) lives no
longer than that one: revoking the first ends them all, at once.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from arena_runner.server.refusals import RefusedError
from arena_runner.server.store.tables import TokenRow
from arena_runner.server.world import World

log = logging.getLogger(__name__)


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
    WORKER = "worker"
    INFERENCE = "inference"


class TokenKind(StrEnum):
    """What a token is for; only a bearer token opens the API."""

    BEARER = "bearer"
    BROWSER = "browser"
    """inside a browser's cookie"""
    REFRESH = "refresh"
    """of a device login: exchanged for bearer tokens, and good for nothing else"""


EMBEDDED = "embedded"
"""Subject of the token that the owner of the home uses."""

USE_NOTED_EVERY_S = 60.0
"""How exactly it is recorded when a token was used last: not every request is worth a write."""

KEPT_AFTER_END_S = 86400.0

EXTERNAL_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")

INCLUDES: dict[Role, frozenset[Role]] = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.EDITOR: frozenset({Role.VIEWER, Role.EDITOR, Role.INFERENCE}),
    Role.ADMIN: frozenset(Role),
    Role.WORKER: frozenset({Role.WORKER}),
    Role.INFERENCE: frozenset({Role.INFERENCE}),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks."""

    subject: str
    role: Role
    run_id: str | None = None
    """a worker's run; a worker without one serves a pool"""
    token_id: str = ""
    tier: str | None = None
    """the only tier a pool worker may serve; None: any"""

    def may(self, role: Role) -> bool:
        """Whether the caller's role includes `role`."""
        return role in INCLUDES[self.role]

    def require(self, *roles: Role) -> Identity:
        """The same, if it has one of the roles; 403 otherwise."""
        if not any(self.may(role) for role in roles):
            wanted = " or ".join(roles)
            message = f"this needs a token with role {wanted}; yours is {self.role}"
            raise RefusedError(403, "forbidden", message)
        return self

    def check_run(self, run_id: str | None) -> None:
        """Refuse a worker that asks for another run than its own."""
        if self.role == Role.WORKER and self.run_id is not None and run_id != self.run_id:
            raise RefusedError(403, "forbidden", f"this worker's token is for run {self.run_id} only")


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a token shall be."""

    role: Role
    subject: str
    name: str = ""
    kind: TokenKind = TokenKind.BEARER
    parent: str | None = None
    """id of the token it was made from"""
    run_id: str | None = None
    tier: str | None = None
    expires: float | None = None


def new_text() -> str:
    """A token that nobody can guess; by its prefix it is recognised where it should not be written."""
    return "arena_pat_" + secrets.token_urlsafe(32)


def token_id(text: str) -> str:
    """The name by which people list and revoke a token; it tells nothing about the token."""
    return "t_" + _hash(text)[:12]


def store(session: Session, text: str, token: NewToken, now: float) -> TokenRow:
    """Remember a token by its hash; one that is known already is renewed."""
    row = TokenRow(hash=_hash(text), id=token_id(text), kind=token.kind, created=now)
    row.role, row.subject, row.name = token.role, token.subject, token.name
    row.parent, row.run_id, row.tier = token.parent, token.run_id, token.tier
    row.expires, row.last_used, row.revoked = token.expires, None, None
    return session.merge(row)


def issue(
    world: World, role: Role, subject: str, *, run_id: str | None = None, text: str | None = None
) -> str:
    """A token's text, new unless given; only its hash is stored."""
    text = text or new_text()
    with world.store.write() as session:
        store(session, text, NewToken(role, subject, run_id=run_id), world.clock())
    return text


def issue_embedded(world: World, text: str | None) -> str:
    """The token of `server.json`: that of the last life while it is remembered here and not revoked, and no other."""
    with world.store.read() as session:
        known = find(session, text, TokenKind.BEARER, world.clock()) if text else None
    token = issue(world, Role.ADMIN, EMBEDDED, text=text if known else None)
    with world.store.write() as session:
        session.execute(
            delete(TokenRow).where(
                TokenRow.subject == EMBEDDED, TokenRow.parent.is_(None), TokenRow.hash != _hash(token)
            )
        )
    return token


def revoke_run(world: World, run_id: str) -> None:
    """Forget every token of a run's workers."""
    with world.store.write() as session:
        session.execute(delete(TokenRow).where(TokenRow.run_id == run_id))


def authenticate(world: World, header: str | None) -> Identity:
    """The caller behind an `Authorization` header; 401 when there is none we know."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise RefusedError(401, "no-token", "send Authorization: Bearer with a token of this server")
    return identity_of(world, text.strip(), TokenKind.BEARER)


def on_behalf(caller: Identity, user: str | None) -> Identity:
    """The caller for one of its own users: same rights, but what belongs to a subject is that user's alone."""
    if not user:
        return caller
    if not EXTERNAL_USER.fullmatch(user):
        message = "X-External-User-Id: expected up to 128 letters, digits and any of . _ : @ + -"
        raise RefusedError(400, "bad-external-user", message)
    return replace(caller, subject=f"{caller.subject}/{user}")


def identity_of(world: World, text: str, kind: TokenKind) -> Identity:
    """Who a living token of this kind belongs to; 401 for any other text."""
    now = world.clock()
    with world.store.read() as session:
        row = find(session, text, kind, now)
    if row is None:
        message = "this server does not know that token, or it has expired or been revoked"
        raise RefusedError(401, "bad-token", message)
    _note_use(world, row, now)
    return Identity(row.subject, Role(row.role), row.run_id, row.id, row.tier)


def forget_dead(session: Session, now: float) -> None:
    """Drop derived tokens that ended a while ago: browsers and logins make many."""
    old = now - KEPT_AFTER_END_S
    session.execute(delete(TokenRow).where(TokenRow.parent.is_not(None), TokenRow.expires < old))


def find(session: Session, text: str, kind: TokenKind, now: float) -> TokenRow | None:
    """A token's row, while it and all it was made from live."""
    digest = _hash(text)
    row = session.get(TokenRow, digest)
    # The hash was looked up, so that its comparison tells nothing; this one is for the reader's peace.
    if row is None or not hmac.compare_digest(row.hash, digest) or row.kind != kind:
        return None
    return row if alive(session, row, now) else None


def origin_of(session: Session, token_id: str) -> TokenRow:
    """The token that a person was given, from which this one was made in however many steps."""
    row = session.scalars(select(TokenRow).where(TokenRow.id == token_id)).one()
    while row.parent is not None:
        row = session.scalars(select(TokenRow).where(TokenRow.id == row.parent)).one()
    return row


def alive(session: Session, row: TokenRow, now: float) -> bool:
    """Whether neither the token nor one it was made from is revoked, expired or forgotten."""
    link: TokenRow | None = row
    while link is not None:
        if link.revoked is not None or (link.expires is not None and link.expires <= now):
            return False
        if link.parent is None:
            return True
        link = session.scalar(select(TokenRow).where(TokenRow.id == link.parent))
    return False


def _note_use(world: World, row: TokenRow, now: float) -> None:
    if row.last_used is not None and now - row.last_used < USE_NOTED_EVERY_S:
        return
    try:
        with world.store.write() as session:
            known = session.get(TokenRow, row.hash)
            if known is not None:
                known.last_used = now
    except SQLAlchemyError as problem:  # a full disk must not keep people from looking
        log.warning("it was not recorded that token %s is in use: %s", row.id, type(problem).__name__)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
