"""Resources made by commands instead of files: they belong to a reserved stack, which no repository may have.

So a plan never touches them, and a command never changes what a repository manages. Names of commands are free
text; the address is their letters and digits, and the text is kept as a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from arena_gitops.spec.digest import Fingerprint
from arena_gitops.spec.identity import fingerprint_of
from arena_gitops.spec.resource import Address
from arena_gitops.spec.stack import RESERVED
from arena_gitops.spec.wire import Owner, PutResource, ResourceDocument
from arena_runner.server.refusals import RefusedError, not_found
from arena_runner.server.services import resources
from arena_runner.server.store.tables import ResourceRow
from arena_runner.server.world import World

STACK = RESERVED
OWNER = Owner(stack=STACK)

SHOWN = "arena.name"
"""Label that holds a name as it was written, when the address differs."""


def check_stack(owner: Owner) -> None:
    """Refuse names that are none, and a repository that calls itself as the commands' resources are called."""
    resources.check_names(owner)
    if owner.stack == STACK:
        message = f"stack name {STACK!r} is reserved for what commands make; choose another in arena.yaml"
        raise RefusedError(422, "reserved-stack", message)


def slug(text: str) -> str:
    """The resource name of a free text: `GSM8K Tutorial` is `gsm8k-tutorial`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-")
    if not name:
        raise RefusedError(422, "bad-name", f"{text!r} is no name: it needs a letter from a to z or a digit")
    return name


def labels(text: str) -> dict[str, str]:
    """The labels of a resource that was named so."""
    return {} if text == slug(text) else {SHOWN: text}


def shown(row: ResourceRow) -> str:
    """The name people gave."""
    return str(row.spec.get("labels", {}).get(SHOWN, row.name))


def living(session: Session, kind: str) -> list[ResourceRow]:
    """Every resource of a kind, of whatever stack, by name."""
    query = select(ResourceRow).where(ResourceRow.kind == kind, ResourceRow.namespace == OWNER.namespace)
    return list(session.scalars(query.where(~ResourceRow.retired).order_by(ResourceRow.name)))


def find(session: Session, kind: str, text: str) -> ResourceRow | None:
    """The living resource of a name, of whatever stack."""
    row = resources.find(session, Address(kind, slug(text)), OWNER.namespace)
    return None if row is None or row.retired else row


def get(session: Session, kind: str, text: str) -> ResourceRow:
    """As `find`; 404 when there is none."""
    row = find(session, kind, text)
    if row is None:
        raise not_found(f"{kind} {text!r}")
    return row


def put(
    world: World,
    kind: str,
    text: str,
    spec: dict[str, Any],
    *,
    parents: Iterable[Fingerprint] = (),
    kept: Fingerprint | None = None,
    rerun: int = 0,
) -> ResourceDocument:
    """Make or change a resource of the commands' own stack; `kept` is its fingerprint if that stays as it is."""
    with world.store.read() as session:
        row = find(session, kind, text)
    check_ours(row)
    if row is not None and shown(row) != text:
        message = (
            f"{kind} {text!r} would be {row.name}, which is taken by {shown(row)!r}; choose another name"
        )
        raise RefusedError(409, "name-taken", message)
    fingerprint = kept or fingerprint_of(kind, spec, parents)
    body = PutResource(owner=OWNER, spec=spec, fingerprint=fingerprint, rerun=rerun)
    etag = row.etag if row is not None else None
    return resources.put(world, resources.Put(Address(kind, slug(text)), body, etag))


def retire(world: World, kind: str, text: str) -> None:
    """Forget a resource of the commands' own stack; 404 when there is none."""
    with world.store.read() as session:
        row = get(session, kind, text)
    check_ours(row)
    resources.retire(world, Address(kind, row.name), OWNER, row.etag)


def check_ours(row: ResourceRow | None) -> None:
    """Refuse what a repository manages."""
    if row is not None and row.stack != STACK:
        message = (
            f"{row.kind} {row.name} is managed by stack {row.stack!r}: change it in its repository and apply"
        )
        raise RefusedError(409, "owned-by-other", message, {"owner": row.stack})
