"""Bearer tokens, stored by hash, and the roles they carry.

`viewer < editor < admin`; `worker` and `inference` stand beside them and open only their own doors. A worker's
token is bound to one run.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import delete

from arena_runner.server.refusals import RefusedError
from arena_runner.server.store.tables import TokenRow
from arena_runner.server.world import World


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"
    WORKER = "worker"
    INFERENCE = "inference"


EMBEDDED = "embedded"
"""Subject of the token that the owner of the home uses."""

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
    """a worker's run"""

    def may(self, role: Role) -> bool:
        """Whether the caller's role includes `role`."""
        return role in INCLUDES[self.role]

    def check_run(self, run_id: str | None) -> None:
        """Refuse a worker that asks for another run than its own."""
        if self.role == Role.WORKER and self.run_id is not None and run_id != self.run_id:
            raise RefusedError(403, "forbidden", f"this worker's token is for run {self.run_id} only")


def issue(
    world: World, role: Role, subject: str, *, run_id: str | None = None, text: str | None = None
) -> str:
    """A token's text, new unless given; only its hash is stored."""
    text = text or "arena_" + secrets.token_urlsafe(32)
    with world.store.write() as session:
        row = TokenRow(hash=_hash(text), role=role, subject=subject, run_id=run_id, created=world.clock())
        session.merge(row)
    return text


def issue_embedded(world: World, text: str | None) -> str:
    """The token of `server.json`: the one of the last life if it is remembered, and no other."""
    token = issue(world, Role.ADMIN, EMBEDDED, text=text)
    with world.store.write() as session:
        others = delete(TokenRow).where(TokenRow.subject == EMBEDDED, TokenRow.hash != _hash(token))
        session.execute(others)
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
    with world.store.read() as session:
        row = session.get(TokenRow, _hash(text.strip()))
    if row is None:
        raise RefusedError(401, "bad-token", "this server does not know that token")
    return Identity(row.subject, Role(row.role), row.run_id)


def authorise(world: World, header: str | None, *roles: Role) -> Identity:
    """The caller, if it has one of the roles; 403 otherwise."""
    caller = authenticate(world, header)
    if not any(caller.may(role) for role in roles):
        wanted = " or ".join(roles)
        raise RefusedError(403, "forbidden", f"this needs a token with role {wanted}; yours is {caller.role}")
    return caller


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
