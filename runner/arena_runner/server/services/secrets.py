"""Secrets: stored encrypted, given to the worker whose job names them, told to nobody.

A value is bound to its name inside the encryption, so that rows exchanged in the database open nothing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable

from cryptography.fernet import InvalidToken
from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.fields import SECRET_NAME_PATTERN
from arena_gitops.spec.secret import SecretInfo, lacking
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.store.accounts import SecretRow
from arena_runner.server.store.tables import MetaRow
from arena_runner.server.world import World

RESERVED = re.compile(r"(ARENA|LD|PYTHON)_?.*|PATH|HOME|TMPDIR|LANG|LC_.*|OMP_NUM_THREADS|IFS|ENV|BASH_ENV")
"""Variables that mean something to the sandbox, the loader or the interpreter: a reward gets a secret under its name."""

VERSIONS = "secret_versions"
"""Of `meta`: the newest number."""

log = logging.getLogger(__name__)


def put(world: World, name: str, value: str, by: str) -> SecretInfo:
    """Store a value, new or in place of another."""
    if not re.fullmatch(SECRET_NAME_PATTERN, name):
        raise RefusedError(
            422, "bad-name", f"{name!r} is no name of a secret: capitals, digits and underscores"
        )
    if RESERVED.fullmatch(name):
        raise RefusedError(
            422, "bad-name", f"the name {name} is taken by the system a reward runs in; choose another"
        )
    if "\0" in value:
        raise RefusedError(
            422, "bad-value", "a secret is given as an environment variable and can hold no zero byte"
        )
    now = world.clock()
    with world.store.write() as session:
        row = session.get(SecretRow, name) or SecretRow(name=name, created=now, value="")
        if not row.value or _opened(world, row) != value:
            row.version = _next_version(session)
        row.value, row.by, row.updated = _closed(world, name, value), by, now
        session.add(row)
        return _info(world, row)


def listing(world: World) -> tuple[SecretInfo, ...]:
    """What there is, by name."""
    with world.store.read() as session:
        return tuple(_info(world, row) for row in session.scalars(select(SecretRow).order_by(SecretRow.name)))


def remove(world: World, name: str) -> None:
    """Forget a value; runs that are at work keep what they were given."""
    with world.store.write() as session:
        row = session.get(SecretRow, name) if re.fullmatch(SECRET_NAME_PATTERN, name) else None
        if row is None:
            raise not_found(f"secret {name}")
        session.delete(row)


def values(session: Session, world: World, names: Iterable[str]) -> dict[str, str]:
    """The values of those that are here; whoever needs the others says so."""
    rows = session.scalars(select(SecretRow).where(SecretRow.name.in_(tuple(names))))
    opened = {row.name: _opened(world, row) for row in rows}
    return {name: value for name, value in opened.items() if value is not None}


def versions(session: Session) -> dict[str, int]:
    """Which value each has, as a number."""
    return {row.name: row.version for row in session.scalars(select(SecretRow).order_by(SecretRow.name))}


def _next_version(session: Session) -> int:
    """Counted over all secrets, so that one which is removed and stored anew has a number of its own."""
    row = session.get(MetaRow, VERSIONS) or MetaRow(key=VERSIONS, value="1")
    row.value = str(int(row.value) + 1)
    session.add(row)
    return int(row.value)


def names(world: World) -> frozenset[str]:
    """Those that have a value that can be read."""
    return frozenset(secret.name for secret in listing(world) if secret.readable)


def require(session: Session, world: World, names: Iterable[str]) -> None:
    """Refuse what could never run here for want of a secret."""
    wanted = tuple(names)
    missing = sorted(set(wanted) - set(values(session, world, wanted))) if wanted else []
    if missing:
        raise RefusedError(422, "missing-secret", lacking(missing), {"missing": ",".join(missing)})


def renew(world: World) -> int:
    """Encrypt with the newest key what was with an older one; how many were."""
    renewed = 0
    with world.store.write() as session:
        for row in session.scalars(select(SecretRow)):
            if not _newest_opens(world, row) and (value := _opened(world, row)) is not None:
                row.value = _closed(world, row.name, value)
                renewed += 1
    if renewed:
        log.info("%d secrets are encrypted with the newest key now", renewed)
    return renewed


def waiting(world: World) -> tuple[str, ...]:
    """Names of those that only an older key opens."""
    with world.store.read() as session:
        rows = session.scalars(select(SecretRow).order_by(SecretRow.name))
        return tuple(
            row.name for row in rows if not _newest_opens(world, row) and _opened(world, row) is not None
        )


def _newest_opens(world: World, row: SecretRow) -> bool:
    try:
        world.keys.newest.fernet.decrypt(row.value.encode())
    except InvalidToken:
        return False
    return True


def _closed(world: World, name: str, value: str) -> str:
    return world.keys.fernet.encrypt(json.dumps([name, value]).encode()).decode()


def _opened(world: World, row: SecretRow) -> str | None:
    try:
        name, value = json.loads(world.keys.fernet.decrypt(row.value.encode()))
    except InvalidToken:
        log.warning("secret %s was stored with another key than this server has: set it again", row.name)
        return None
    return str(value) if name == row.name else None


def _info(world: World, row: SecretRow) -> SecretInfo:
    readable = _opened(world, row) is not None
    return SecretInfo(
        name=row.name,
        by=row.by,
        created=row.created,
        updated=row.updated,
        version=row.version,
        readable=readable,
    )
