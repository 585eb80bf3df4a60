"""Conversations with a deployment: the client makes up an id, the server keeps what was said under it.

A session belongs to the token's subject and nobody else sees it, unless the deployment was made with memory scope
`organization`: then all who may ask it share its sessions.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from arena_gitops.spec.resource import Address
from arena_runner.server.refusals import not_found
from arena_runner.server.services import resources
from arena_runner.server.store.tables import ChatSessionRow, ResourceRow
from arena_runner.server.world import World
from arena_runner.serving.protocol import Message

SCOPE = "arena.memory-scope"
"""Label of a deployment that says who shares its sessions."""
PERSONAL, SHARED = "user", "organization"
EVERYONE = "*"
"""Owner of shared sessions; no token has this subject."""

KEPT = 200
"""Messages of one session; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose conversations, with what."""

    namespace: str
    deployment: str
    subject: str


def owner(world: World, namespace: str, deployment: str, subject: str) -> Owner:
    """Whose sessions a caller has with a deployment."""
    with world.store.read() as session:
        row = resources.find(session, Address("deployment", deployment), namespace)
    return Owner(namespace, deployment, EVERYONE if row is not None and scope_of(row) == SHARED else subject)


def scope_of(row: ResourceRow) -> str:
    """A deployment's memory scope."""
    return str(row.spec.get("labels", {}).get(SCOPE, PERSONAL))


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session."""

    id: str
    created: float
    updated: float
    messages: tuple[Message, ...]


def listed(world: World, owner: Owner) -> list[Conversation]:
    """Every session, the one used last first."""
    query = select(ChatSessionRow).where(
        ChatSessionRow.namespace == owner.namespace,
        ChatSessionRow.deployment == owner.deployment,
        ChatSessionRow.subject == owner.subject,
    )
    with world.store.read() as session:
        return [_read(row) for row in session.scalars(query.order_by(ChatSessionRow.updated.desc()))]


def get(world: World, owner: Owner, name: str) -> Conversation:
    """One session; 404 when there is none."""
    with world.store.read() as session:
        row = session.get(ChatSessionRow, _key(owner, name))
    if row is None:
        raise not_found(f"session {name}")
    return _read(row)


def history(world: World, owner: Owner, name: str) -> tuple[Message, ...]:
    """What was said before; nothing in a session nobody knows yet."""
    with world.store.read() as session:
        row = session.get(ChatSessionRow, _key(owner, name))
    return () if row is None else _read(row).messages


def append(world: World, owner: Owner, name: str, prompt: str, completion: str) -> None:
    """Keep one exchange."""
    said = (Message(role="user", content=prompt), Message(role="assistant", content=completion))
    with world.store.write() as session:
        row = session.get(ChatSessionRow, _key(owner, name))
        if row is None:
            row = ChatSessionRow(
                namespace=owner.namespace, deployment=owner.deployment, subject=owner.subject, session=name
            )
            row.created, row.content = world.clock(), {"messages": []}
            session.add(row)
        messages = [*row.content["messages"], *(message.model_dump() for message in said)]
        row.content, row.updated = {"messages": messages[-KEPT:]}, world.clock()


def delete(world: World, owner: Owner, name: str) -> None:
    """Forget a session; 404 when there is none."""
    with world.store.write() as session:
        row = session.get(ChatSessionRow, _key(owner, name))
        if row is None:
            raise not_found(f"session {name}")
        session.delete(row)


def _key(owner: Owner, name: str) -> tuple[str, str, str, str]:
    return owner.namespace, owner.deployment, owner.subject, name


def _read(row: ChatSessionRow) -> Conversation:
    messages = tuple(Message.model_validate(message) for message in row.content["messages"])
    return Conversation(row.session, row.created, row.updated, messages)
