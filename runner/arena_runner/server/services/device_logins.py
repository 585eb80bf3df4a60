"""Device logins (RFC 8628): a program asks, a person approves in a browser, the program fetches its tokens.

What it gets is a bearer token of an hour and a refresh token of thirty days, both made from the approver's token: they
have no role that it lacks, and end when it is revoked. The bearer token has the shape of a JWT because clients read
its `exp`; the server itself recognises it by its hash, like every other.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum

import jwt
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from arena_gitops.errors import ArenaError
from arena_runner.server import auth
from arena_runner.server.auth import Identity, NewToken, Role, TokenKind
from arena_runner.server.store.accounts import DeviceLoginRow
from arena_runner.server.store.tables import TokenRow
from arena_runner.server.world import World

LASTS_S = 600.0
INTERVAL_S = 2.0
SLOWER_BY_S = 5.0
ACCESS_S = 3600.0
REFRESH_S = 30 * 86400.0
PENDING_LIMIT = 1000
"""Anybody may ask, so there is an end to it."""

ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so no words; no digits that look like letters."""
CODE_LENGTH = 8


class GrantProblem(StrEnum):
    """The protocol's words for why there are no tokens."""

    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    EXPIRED = "expired_token"
    DENIED = "access_denied"
    INVALID = "invalid_grant"
    BUSY = "temporarily_unavailable"


class GrantError(ArenaError):
    """No tokens, and why."""

    def __init__(self, problem: GrantProblem, message: str) -> None:
        self.problem, self.message = problem, message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a program is told when it asks."""

    device_code: str
    user_code: str
    expires_in: int
    interval: int


@dataclass(frozen=True, slots=True)
class Granted:
    """What it gets in the end."""

    access_token: str
    refresh_token: str
    expires_in: int
    refresh_expires_in: int


def ask(world: World, client: str, asked_from: str) -> Asked:
    """Begin a login."""
    now, device_code = world.clock(), secrets.token_urlsafe(32)
    user_code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
    with world.store.write() as session:
        session.execute(delete(DeviceLoginRow).where(DeviceLoginRow.expires < now - LASTS_S))
        if (session.scalar(select(func.count()).select_from(DeviceLoginRow)) or 0) >= PENDING_LIMIT:
            raise GrantError(GrantProblem.BUSY, "too many logins wait for approval; try again later")
        row = DeviceLoginRow(
            hash=_hash(device_code), user_code=user_code, client=client, asked_from=asked_from
        )
        row.state, row.created, row.expires, row.interval_s = "pending", now, now + LASTS_S, INTERVAL_S
        session.add(row)
    return Asked(device_code, shown(user_code), int(LASTS_S), int(INTERVAL_S))


def waiting(world: World, typed: str) -> DeviceLoginRow | None:
    """The login that waits under a code, however it was typed."""
    with world.store.read() as session:
        return _waiting(session, typed, world.clock())


def decide(world: World, typed: str, approver: Identity, role: Role | None) -> bool:
    """Approve with a role, or deny with None; False when nothing waits under the code any more."""
    if role is not None:
        approver.require(role)
    with world.store.write() as session:
        row = _waiting(session, typed, world.clock())
        if row is None:
            return False
        row.state = "denied" if role is None else "approved"
        row.role, row.subject = role, approver.subject
        row.parent = auth.origin_of(session, approver.token_id).id
    return True


def poll(world: World, device_code: str, issuer: str) -> Granted:
    """The tokens, once a person has approved.

    Raises:
        GrantError: There are none, or not yet.
    """
    now = world.clock()
    with world.store.write() as session:
        row = session.get(DeviceLoginRow, _hash(device_code))
        problem = _problem(row, now)
        if problem is None and row is not None:
            granted = _grant(session, world, row, issuer)
            session.delete(row)
            return granted
    raise GrantError(*(problem or _UNKNOWN))  # after the commit: a poll that came too early was recorded


def refresh(world: World, refresh_token: str, client: str, issuer: str) -> Granted:
    """A new bearer token for a refresh token, which stays as it is: two commands may need it at once."""
    now = world.clock()
    with world.store.write() as session:
        row = auth.find(session, refresh_token, TokenKind.REFRESH, now)
        if row is None:
            raise GrantError(GrantProblem.INVALID, "the login has expired or was revoked: log in again")
        row.last_used = now
        access = _access_token(session, world, row, client, issuer)
        return Granted(access, refresh_token, int(ACCESS_S), int((row.expires or now) - now))


def log_out(world: World, refresh_token: str) -> None:
    """End a login with all its tokens; one that is over already is no error."""
    with world.store.write() as session:
        row = auth.find(session, refresh_token, TokenKind.REFRESH, world.clock())
        if row is not None:
            row.revoked = world.clock()


def shown(user_code: str) -> str:
    """As people read it: two groups."""
    return f"{user_code[:4]}-{user_code[4:]}"


_UNKNOWN = (GrantProblem.INVALID, "this server does not know that device code")


def _problem(row: DeviceLoginRow | None, now: float) -> tuple[GrantProblem, str] | None:
    if row is None:
        return _UNKNOWN
    if row.expires <= now:
        return GrantProblem.EXPIRED, "the login was not approved in time"
    if row.state == "denied":
        return GrantProblem.DENIED, "the login was denied in the browser"
    early = row.polled is not None and now - row.polled < row.interval_s * 0.9  # clocks and networks waver
    row.polled = now
    if early:
        row.interval_s += SLOWER_BY_S
        return GrantProblem.SLOW_DOWN, f"ask every {row.interval_s:g} seconds"
    return (GrantProblem.PENDING, "nobody has approved the login yet") if row.state == "pending" else None


def _waiting(session: Session, typed: str, now: float) -> DeviceLoginRow | None:
    code = "".join(c for c in typed.upper() if c in ALPHABET)
    row = session.scalar(select(DeviceLoginRow).where(DeviceLoginRow.user_code == code))
    return row if row is not None and row.state == "pending" and row.expires > now else None


def _grant(session: Session, world: World, row: DeviceLoginRow, issuer: str) -> Granted:
    now, text = world.clock(), auth.new_text()
    auth.forget_dead(session, now)
    token = NewToken(Role(row.role or Role.VIEWER), row.subject or "", f"login of {row.client}")
    token = replace(token, kind=TokenKind.REFRESH, parent=row.parent, expires=now + REFRESH_S)
    login = auth.store(session, text, token, now)
    session.flush()
    access = _access_token(session, world, login, row.client, issuer)
    return Granted(access, text, int(ACCESS_S), int(REFRESH_S))


def _access_token(session: Session, world: World, login: TokenRow, client: str, issuer: str) -> str:
    now = world.clock()
    ends = min(now + ACCESS_S, login.expires or now + ACCESS_S)
    claims: dict[str, str | int] = {
        "iss": issuer,
        "sub": login.subject,
        "azp": client,
        "role": login.role,
        "typ": "Bearer",
    }
    claims |= {"iat": int(now), "exp": int(ends), "jti": secrets.token_urlsafe(16)}
    text = jwt.encode(claims, world.keys.derive("access-token"), algorithm="HS256")
    token = NewToken(Role(login.role), login.subject, login.name, parent=login.id, expires=ends)
    auth.store(session, text, token, now)
    return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
